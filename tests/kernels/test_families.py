"""One house for all families: the same file names everywhere, a proof to every kernel, and what runs knows no proof."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tensorfold import kernels
from tensorfold.kernels.source import included_files
from tensorfold.proof import families

ROOT = Path(__file__).parents[2] / "tensorfold"
RUNS, PROVES = ROOT / "kernels", ROOT / "proof" / "families"
PROOF_FILES = {"__init__.py", "reference.py", "stated.py", "cases.py", "mistakes.py"}


def folders(root: Path) -> list[Path]:
    return [p for p in sorted(root.iterdir()) if (p / "__init__.py").exists()]


@pytest.mark.parametrize("folder", folders(RUNS), ids=lambda p: p.name)
def test_files_of_what_runs(folder: Path) -> None:
    modules = {p.name for p in folder.glob("*.py")}
    assert {"__init__.py", "plan.py"} <= modules <= {"__init__.py", "plan.py", "geometry.py"}


@pytest.mark.parametrize("folder", folders(PROVES), ids=lambda p: p.name)
def test_files_of_a_proof(folder: Path) -> None:
    modules, texts = {p.name for p in folder.glob("*.py")}, {p.name for p in folder.glob("*.metal")}
    assert modules - {"alone.py"} == PROOF_FILES
    assert bool(texts) == ("alone.py" in modules)  # a text in a proof's folder is no model's
    assert not [p for p in folder.iterdir() if p.suffix not in (".py", ".metal") and p.name != "__pycache__"]


def test_every_kernel_has_a_proof_and_every_text_a_kernel() -> None:
    proofs = families.all_proofs()
    launched = kernels.all_kernels()
    assert all(proofs[name].kernel is kernel for name, kernel in launched.items())
    used = {path for proof in proofs.values() for path in included_files(proof.kernel.path)}
    assert used == {p for root in (RUNS, PROVES) for p in root.rglob("*") if p.suffix in (".metal", ".h")}
    assert {p.kernel.path.parents[1] for p in proofs.values() if p.name in launched} == {RUNS}
    assert {p.kernel.path.parents[1] for p in proofs.values() if p.name not in launched} == {PROVES}


def imported(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_what_runs_imports_no_proof() -> None:
    """But for the host backend, which is a tool of the proof and imported where it is asked for by name."""
    asking = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if any(name.startswith("tensorfold.proof") for name in imported(path))
        and not path.is_relative_to(ROOT / "proof")
        and not path.is_relative_to(ROOT / "receipt")
    }
    assert asking == {"backend/choice.py", "contract.py"}


def test_kernels_know_nothing_above_them() -> None:
    for path in RUNS.rglob("*.py"):
        known = {name for name in imported(path) if name.startswith("tensorfold.")}
        assert all(name.startswith(("tensorfold.kernels", "tensorfold.small")) for name in known), path


@pytest.mark.parametrize("folder", folders(PROVES), ids=lambda p: p.name)
def test_no_number_of_a_proof_comes_from_what_it_judges(folder: Path) -> None:
    """But for kernels that stand with their proof, which are planned as those that run."""
    for path in folder.glob("*.py"):
        known = {name for name in imported(path) if name.startswith("tensorfold.kernels")}
        known -= {"tensorfold.kernels.kernel", "tensorfold.kernels.kernel.Array"}
        assert path.name == "alone.py" or not known, (path, known)


def test_no_truth_is_an_order_and_no_order_a_truth() -> None:
    """A composition's truth may begin at values that another family's order states, never at its own."""
    truths, orders = set[str](), set[str]()
    for proof in families.all_proofs().values():
        truth, order = (getattr(f, "func", f) for f in (proof.reference, proof.stated))
        truths.add(f"{truth.__module__}.{proof.name}")
        orders.add(f"{order.__module__}.{proof.name}")
    for folder in folders(PROVES):
        in_order, in_truth = imported(folder / "stated.py"), imported(folder / "reference.py")
        assert not in_order & truths, folder
        whole = [n for n in in_order if n.endswith(".reference") and n.removesuffix(".reference") in in_order]
        assert not whole, folder
        assert not [n for n in in_truth & orders if n.startswith(f"tensorfold.proof.families.{folder.name}.")], folder


def test_no_kernel_is_judged_by_its_own_order() -> None:
    for proof in families.all_proofs().values():
        truth, order = (getattr(f, "func", f) for f in (proof.reference, proof.stated))
        assert truth.__module__.endswith(".reference") and order.__module__.endswith(".stated"), proof.name
