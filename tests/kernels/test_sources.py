"""Kernel sources: parsed strictly, stripped to what is used, mistakes planted only where the text stands once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensorfold import kernels
from tensorfold.kernels.source import SourceError, backend_text, included_files, parse
from tensorfold.proof import families
from tensorfold.proof.proof import Mistake, Proof

TEXTS = {path for proof in families.all_proofs().values() for path in included_files(proof.kernel.path)}
GOOD = """// about inf and x_shape
#include "portable.h"
P_FN float twice(float a) { return p_add(a, a); }
P_FN float never(float a) { return p_mul(a, a); }
template <typename T, int N>
[[kernel]] void k(
    const device T* x,   // a comment
    device float* y,
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint i = thread_position_in_grid.x;  /* and
  another */
  p_store(y + i, twice(p_load(x[i])));
}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "k.metal"
    path.write_text(text)
    return path


def test_a_template_of_several_lines(tmp_path: Path) -> None:
    lines = "template <\n    typename T,  // what x holds, or y\n    int N>       // how many\n"
    assert parse(_write(tmp_path, GOOD.replace("template <typename T, int N>\n", lines))).template == (
        ("T", "typename"),
        ("N", "int"),
    )


def test_parts(tmp_path: Path) -> None:
    text = parse(_write(tmp_path, GOOD))
    assert text.template == (("T", "typename"), ("N", "int"))
    assert [(p.name, p.type, p.attribute) for p in text.parameters] == [
        ("x", "const device T*", None),
        ("y", "device float*", None),
        ("thread_position_in_grid", "uint3", "thread_position_in_grid"),
    ]


@pytest.mark.parametrize("metal", [True, False])
def test_stripped_to_what_is_used(tmp_path: Path, metal: bool) -> None:
    header, body = backend_text(parse(_write(tmp_path, GOOD)), metal)
    assert "twice" in header and "never" not in header and "p_lanesum" not in header
    assert "//" not in header + body and "/*" not in body and "x_shape" not in header + body
    assert ("__shfl" in header, "METAL" in header) == (False, metal)
    assert '#line 10 "k.metal"' in body and len(header) < 3000


def test_lines_stay_true(tmp_path: Path) -> None:
    header, body = backend_text(parse(_write(tmp_path, GOOD)), metal=True)
    lines = GOOD.split("\n")
    for text in (header, body):
        number = file = None
        for line in text.split("\n"):
            if line.startswith("#line"):
                number, file = int(line.split()[1]), line.split()[2].strip('"')
                continue
            if line and file == "k.metal":
                assert number is not None and lines[number - 1].strip().startswith(line[:12])
            number = None if number is None else number + 1


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("[[kernel]]", "[[kernal]]", "no .*kernel"),
        ("void k(", "void other(", "named other"),
        ("[[kernel]] void k(", "[[kernel]]\nvoid k[", "write `.*` on the line"),
        ("twice(p_load", "twice(\u03c0_load", "ascii|ASCII"),
        ("*/\n", "*/\n}\nP_FN float after() {\n", "text after the kernel"),
    ],
)
def test_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises((SourceError, UnicodeError), match=message):
        parse(_write(tmp_path, GOOD.replace(old, new)))


def test_elif_after_a_backend_condition_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("P_FN float never", "#if defined(__METAL_VERSION__)\n#elif 1\n#endif\nP_FN float never")
    with pytest.raises(SourceError, match="k.metal:5: #elif"):
        backend_text(parse(_write(tmp_path, text)), True)


def test_a_mistake_is_planted_exactly_once() -> None:
    proof = families.get("rms_norm")
    with pytest.raises(SourceError, match="matches 0 times"):
        proof.planted(Mistake("nothing", "no such text", ""))
    with pytest.raises(SourceError, match="matches [2-9] times"):
        proof.planted(Mistake("twice", "p_load", ""))
    with pytest.raises(SourceError, match="not part of the kernel"):
        proof.planted(Mistake("elsewhere", "a", "b", file="maths.h"))
    planted = proof.planted(
        Mistake("lanes", "simd_shuffle_xor(v, ushort(16)));\n  v = p_add", "v);\n  v = p_add", "portable.h")
    )
    plain, changed = proof.kernel.text, planted.kernel.text
    assert changed != plain and backend_text(plain, True) != backend_text(changed, True)


# a launch of several parts may be as long as they are, less what they share
TOGETHER = {
    "attend_values": 18000,
    "moe_up": 18000,
    "moe_down": 18000,
    "matvec_fp8_quantised": 13000,
}


@pytest.mark.parametrize("proof", families.all_proofs().values(), ids=lambda p: p.name)
def test_every_kernel_is_small_text(proof: Proof) -> None:
    for metal in (True, False):
        header, body = backend_text(proof.kernel.text, metal)
        assert (header + body).isascii() and len(header) + len(body) < TOGETHER.get(proof.name, 12000)
    assert len(proof.mistakes) >= 2 and all("host" in m.backends for m in proof.mistakes)
    assert proof.bound.reason
    for mistake in proof.mistakes:
        proof.planted(mistake)


@pytest.mark.parametrize("path", sorted(TEXTS), ids=lambda p: p.name)
def test_every_template_number_says_what_it_counts(path: Path) -> None:
    """A line of its own, with words beside it."""
    text = path.read_text("ascii")
    for template in re.finditer(r"(?m)^template\s*<.*?>[^\n]*$", re.sub(r"(?m)//.*$", hidden, text), re.S):
        for line in text[template.start() : template.end()].split("\n"):
            code, _, words = line.partition("//")
            numbers = re.findall(r"\b(?:int|bool) \w+(?=\s*[,>])", code)
            assert len(numbers) <= 1 and (words.strip() or not numbers), f"{path.name}: {line}"


def hidden(comment: re.Match[str]) -> str:
    """As many signs that begin and end nothing."""
    return "_" * len(comment[0])


@pytest.mark.parametrize("path", sorted(p for p in TEXTS if p.suffix == ".metal"), ids=lambda p: p.name)
def test_a_kernels_head_says_what_in_what_order_and_by_whom(path: Path) -> None:
    head = path.read_text("ascii").split("\n#include")[0]
    assert all(line.startswith("//") for line in head.split("\n"))
    assert re.search(r"\n// Order\b", head) and re.search(r"\n// Threads\b|how threads|who computes", head)


def test_unknown_name() -> None:
    with pytest.raises(KeyError, match="rms_norm"):
        families.get("rmsnorm")
    with pytest.raises(KeyError, match="embed"):
        kernels.get("rope")  # no model launches it
