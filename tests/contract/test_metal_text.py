"""The text that the checker reads is the text MLX generates, and each kernel's Metal signature is pinned.

`python tests/contract/test_metal_text.py` writes the pinned signatures anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "metal_signatures.json"
# runs in a process of its own: MLX prints the text from C++ while a function is exported
_EXPORT = """
import sys, tempfile, mlx.core as mx
from tensorfold.kernels.kernel import as_mlx
from tensorfold.kernels.launch import MlxLauncher
from tensorfold.proof.families import all_proofs
launcher = MlxLauncher("metal", mx.fast.metal_kernel)
for proof in all_proofs().values():
    case = proof.cases()[0]
    plan = proof.launch(case)
    made = launcher.mlx_kernel(proof.kernel)
    def call(*arrays):
        return made(inputs=list(arrays), template=list(plan.template.items()), grid=plan.grid,
                    threadgroup=plan.threadgroup, output_shapes=list(plan.shapes),
                    output_dtypes=list(plan.dtypes), verbose=True)
    with tempfile.NamedTemporaryFile(suffix=".mlxfn") as file:
        mx.export_function(file.name, call, *[as_mlx(a) for a in case.arrays])
"""


def printed_by_mlx() -> dict[str, str]:
    """The Metal text MLX generates for each kernel's first case, its mangled name replaced by the kernel's."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", _EXPORT], capture_output=True, text=True, env=environment, check=True
    ).stdout
    found = {}
    for name, text in re.findall(r"Generated source code for `tf_(\w+)`:\n```\n(.*?)\n```", out, re.S):
        mangled = re.search(r"custom_kernel_tf_\w+", text)
        assert mangled
        found[name] = text.replace(mangled[0], f"tf_{name}").strip()
    return found


def signature(text: str) -> str:
    """Template and parameters of a kernel."""
    match = re.search(r"(?:template <[^>]*>\n)?\[\[kernel\]\] void [^{]*\{", text)
    assert match
    return match[0]


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    return printed_by_mlx()


def test_the_checker_reads_what_mlx_generates(printed: dict[str, str]) -> None:
    from tensorfold.proof.families import all_proofs
    from tensorfold.proof.host.mlx_text import PRELUDE, generate
    from tensorfold.proof.host.program import describe

    assert list(printed) == list(all_proofs())
    for name, proof in all_proofs().items():
        case = proof.cases()[0]
        plan = proof.launch(case)
        ours = generate(proof.kernel, describe(case.arrays), plan.template, plan.dtypes).text
        assert re.sub(r"\n+", "\n", ours.removeprefix(PRELUDE)).strip() == re.sub(r"\n+", "\n", printed[name]), name


def test_signatures_are_the_golden_ones(printed: dict[str, str]) -> None:
    assert {name: signature(text) for name, text in printed.items()} == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    GOLDEN.write_text(json.dumps({n: signature(t) for n, t in printed_by_mlx().items()}, indent=1) + "\n")
    print(f"wrote {GOLDEN.name}")
