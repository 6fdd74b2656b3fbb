"""What a wheel holds: every file the package reads beside its modules, and no weights."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tensorfold"


def other_files() -> set[Path]:
    """Everything in the package that is not a module."""
    return {p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}


def test_package_data_names_every_file() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = settings["package-data"]["tensorfold"]
    packed = {p for pattern in patterns for p in PACKAGE.glob(pattern)}
    assert other_files() - packed == set(), "add their suffix to [tool.setuptools.package-data]"
    assert PACKAGE / "py.typed" in packed and any(p.suffix == ".metal" for p in packed)
    assert settings["packages"]["find"]["include"] == ["tensorfold*"]


def test_no_weights_are_packed() -> None:
    weights = (".safetensors", ".bin", ".npz", ".model")
    assert not [p for p in other_files() if p.suffix in weights or p.stat().st_size > 2**20]


def test_readme_and_licence_are_named_and_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (ROOT / project["readme"]).is_file() and all((ROOT / f).is_file() for f in project["license-files"])
    assert project["license"] == "MIT" and project["requires-python"] == ">=3.10"
    assert set(project["optional-dependencies"]) >= {"cpu", "cuda12", "cuda13", "test"}
