"""Launchers: the same call on every backend, types checked, and errors that say kernel, backend, line and remedy."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from tensorfold import kernels
from tensorfold.kernels import kernel, launch
from tensorfold.kernels.kernel import as_mlx, as_numpy
from tensorfold.proof import families
from tensorfold.proof.host import clang
from tensorfold.proof.proof import Mistake
from tests.support.hostkit import needs_clang

PROOF = families.get("rms_norm")
RMS = PROOF.kernel


@pytest.fixture(autouse=True)
def fresh_launchers() -> Iterator[None]:
    launch.launcher.cache_clear()
    yield
    launch.launcher.cache_clear()


def _arrays(rows: int = 2, k: int = 64) -> list[mx.array]:
    return [mx.ones((rows, k), mx.bfloat16), mx.ones((k,), mx.bfloat16), mx.array([1e-20], mx.float32)]


@needs_clang
def test_host_takes_and_gives_mlx_arrays() -> None:
    x = mx.random.normal((3, 128)).astype(mx.bfloat16)
    w = mx.random.normal((128,)).astype(mx.bfloat16)
    (y,) = RMS(x, w, mx.array([1e-20]), backend="host")
    assert y.dtype == mx.bfloat16 and y.shape == (3, 128)
    (wanted,) = PROOF.stated(as_numpy(x), as_numpy(w), np.array([1e-20], np.float32))
    assert np.array_equal(as_numpy(y), wanted)


@needs_clang
def test_host_takes_views() -> None:
    base = mx.random.normal((6, 128)).astype(mx.bfloat16)
    w, eps = mx.ones((128,), mx.bfloat16), mx.array([1e-20])
    assert mx.array_equal(RMS(base[1::2], w, eps, backend="host")[0], RMS(base, w, eps, backend="host")[0][1::2])


@needs_clang
def test_build_error_names_kernel_backend_and_line() -> None:
    planted = PROOF.planted(Mistake("broken", "float r = ", "float r = missing + "))
    broken = planted.kernel
    number = 1 + planted.files()["rms_norm.metal"].split("missing")[0].count("\n")
    with pytest.raises(launch.BuildError, match=rf"kernel rms_norm .* host: rms_norm.metal:{number}: .*missing"):
        broken(*_arrays(), backend="host")
    with pytest.raises(launch.BuildError, match="kernel rms_norm"):
        launch.build(broken, _arrays(), broken.launch(_arrays()), "host")


def test_wrong_arrays_are_refused() -> None:
    x, w, eps = _arrays()
    cases = [
        ([x, w], "takes 3 arrays"),
        ([x, w.astype(mx.float32), eps], "w is declared bfloat16_t"),
        ([x, w, eps.astype(mx.int32)], "eps is declared float"),
    ]
    for arrays, message in cases:
        plan = RMS.launch(_arrays())
        with pytest.raises(TypeError, match=message):
            launch.check_types(RMS, arrays, plan)
    with pytest.raises(ValueError, match="w has shape"):
        RMS.launch([x, w[:5], eps])


def test_grid_must_be_a_multiple_of_the_threadgroup() -> None:
    plan = RMS.launch(_arrays())
    bad = kernels.Launch(plan.template, (100, 1, 1), plan.threadgroup, plan.shapes, plan.dtypes)
    with pytest.raises(ValueError, match="not a multiple"):
        launch.check_types(RMS, _arrays(), bad)


def test_without_clang_the_host_backend_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clang, "find_clang", lambda: None)
    with pytest.raises(clang.ClangMissing, match="apt-get install clang-19"):
        RMS(*_arrays(), backend="host")


def test_old_metal_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(platform, "mac_ver", lambda: ("14.5", ("", "", ""), "arm64"))
    with pytest.raises(launch.BackendError, match="Metal 3.2, which comes with macOS 15; this is macOS 14.5"):
        launch.launcher("metal")


def test_missing_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)
    monkeypatch.setattr(mx.cuda, "is_available", lambda: False)
    with pytest.raises(launch.BackendError, match="Apple silicon"):
        launch.launcher("metal")
    with pytest.raises(launch.BackendError, match="NVIDIA"):
        launch.launcher("cuda")
    with pytest.raises(ValueError, match="unknown backend 'tpu'"):
        launch.launcher("tpu")


def test_bfloat16_travels_as_bits() -> None:
    x = np.arange(8, dtype=np.uint16)
    assert as_mlx(x).dtype == mx.bfloat16 and np.array_equal(as_numpy(as_mlx(x)), x)


def test_the_host_backend_is_there_once_the_proof_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_OFFERED", {})
    with pytest.raises(launch.BackendError, match="import tensorfold.proof.host"):
        launch.launcher("host")
