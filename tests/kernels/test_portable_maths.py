"""exp, log and their kin: 2 ulp over the whole range, the stated special values, numpy and compiled alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.proof.numerics import functions
from tests.support.hostkit import needs_clang, probe, run_probe

L = np.longdouble
INF, NAN = np.float32(np.inf), np.float32(np.nan)
COUNT = 1 << 16


def _spread(low: float, high: float) -> np.ndarray:
    """float32 of every exponent between two positive values."""
    edges = np.array([low, high], np.float32).view(np.uint32)
    return np.linspace(int(edges[0]), int(edges[1]), COUNT).astype(np.uint32).view(np.float32)


def _even(low: float, high: float) -> np.ndarray:
    return np.linspace(low, high, COUNT).astype(np.float32)


TRUTH = {
    "exp": lambda x: np.exp(x),
    "log": lambda x: np.log(x),
    "log1p": lambda x: np.log1p(x),
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}
RANGES = {
    "exp": [_even(-87, 88.7228), _even(-1, 1), _spread(1e-38, 88), -_spread(1e-38, 87)],
    "log": [_spread(2.0**-126, 3.4e38), _even(0.5, 2), _even(0.99, 1.01)],
    "log1p": [
        _spread(2.0**-126, 3.4e38),
        -_spread(2.0**-126, 0.9999999),
        _even(-0.9, 3),
        _even(0.4, 0.43),
        _even(-0.3, -0.28),
    ],
    "sigmoid": [_even(-87, 30), _even(-19, -17), _spread(1e-38, 3e38), -_spread(1e-38, 87)],
    "softplus": [_even(-87, 25), _even(-2, 2), _even(19.9, 20.1), _spread(1e-38, 3e38), -_spread(1e-38, 87)],
}
SPECIAL = {
    "exp": [(-87.00001, 0), (-INF, 0), (INF, INF), (88.73, INF), (NAN, NAN), (0, 1), (-0.0, 1), (1e-40, 1)],
    "log": [(0, -INF), (-0.0, -INF), (1e-40, -INF), (-1, NAN), (-INF, NAN), (INF, INF), (NAN, NAN), (1, 0)],
    "log1p": [(0, 0), (-0.0, -0.0), (-1, -INF), (-1.0001, NAN), (-INF, NAN), (INF, INF), (NAN, NAN), (1e-40, 0)],
    "sigmoid": [(0, 0.5), (INF, 1), (-INF, 0), (-87.1, 0), (NAN, NAN), (100, 1)],
    "softplus": [(INF, INF), (-INF, 0), (-87.1, 0), (NAN, NAN), (21, 21), (3e38, 3e38)],
}
NAMES = sorted(TRUTH)


def _compiled(name: str, folder: Path, x: np.ndarray, **how: object) -> np.ndarray:
    kernel = probe(folder, "maths.h", f"p_store(y + i, p_{name}(x[i]));", {"x": "float"}, {"y": "float"})
    return run_probe(kernel, x, **how)[0]


@pytest.mark.parametrize("name", NAMES)
def test_two_ulp_over_the_whole_range(name: str) -> None:
    for x in RANGES[name]:
        y, truth = getattr(functions, name)(x), TRUTH[name](x.astype(L))
        keep = (np.abs(truth) >= 2.0**-126) & (np.abs(truth) < 3.4e38)
        step = np.spacing(np.abs(truth[keep]).astype(np.float32)).astype(L)
        assert keep.any() and np.max(np.abs(y[keep].astype(L) - truth[keep]) / step) < 2


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    x, wanted = (np.array(v, np.float32) for v in zip(*SPECIAL[name]))
    y = getattr(functions, name)(x)
    assert np.array_equal(y, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(y), np.signbit(wanted) & ~np.isnan(wanted)) or np.isnan(wanted).any()


@needs_clang
@pytest.mark.parametrize("name", NAMES)
def test_compiled_bits_are_numpys(name: str, tmp_path: Path) -> None:
    special = np.resize(np.array([s[0] for s in SPECIAL[name]], np.float32), 256)
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint32) << 16
    x = np.concatenate([*RANGES[name], special, every.view(np.float32)])
    wanted = getattr(functions, name)(x)
    for flush in (False, True):
        got = _compiled(name, tmp_path, x, flush=flush)
        same = (got.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(got) & np.isnan(wanted))
        assert same.all(), x[~same][:4]


@needs_clang
def test_no_result_is_subnormal(tmp_path: Path) -> None:
    x = np.concatenate([_even(-90, -86), -_spread(1e-45, 1e-37), _spread(1e-45, 1e-37)])
    for name in NAMES:
        y = np.abs(_compiled(name, tmp_path, x))
        assert not ((y > 0) & (y < 2.0**-126)).any()
