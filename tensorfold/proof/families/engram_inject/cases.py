"""engram_inject: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case


def inverse_root(d: int) -> Array:
    """The input `root`: 1 / sqrt(D), rounded once."""
    return np.array([d**-0.5], f32)


def _arrays(draw: inputs.Draw, rows: int, d: int, n: int = 4) -> tuple[Array, ...]:
    weights = draw.bf16(n, d), draw.bf16(n, d)
    return draw.bf16(rows, n, d), draw.bf16(rows, (n + 1) * d), *weights, np.array([1e-20], f32), inverse_root(d)


def _cancelling(rows: int, d: int) -> tuple[Array, ...]:
    """Dot products whose halves cancel but for one element: the order of the sum shows in the gate."""
    draw = inputs.Draw(11)
    x, kv, q, k, eps, root = _arrays(draw, rows, d)
    half = d // 2
    x[..., half:], q[:, half:], k[:, half:] = x[..., :half], q[:, :half], k[:, :half]
    keys = kv[:, : 4 * d].reshape(rows, 4, d)
    keys[..., half:] = keys[..., :half] ^ 0x8000
    keys[..., 5] += 1
    return x, kv, q, k, eps, root


def engram_inject() -> list[Case]:
    """Every hidden size in use; dot products that cancel; zeros, extremes and every bit pattern."""
    found = []
    for d in (128, 256, 5120):
        found.append(Case(f"D{d}", _arrays(inputs.Draw(d), 16 if d == 128 else 2, d), rows=d == 128))
    found.append(Case("odd width", _arrays(inputs.Draw(3), 3, 288, n=2)))
    found.append(Case("order", _cancelling(3, 1280)))
    _, kv, q, k, eps, root = _arrays(inputs.Draw(5), 16, 128)
    wild = inputs.extremes_bf16(128)
    streams = np.stack([np.roll(wild, shift, axis=0) for shift in (0, 3, 7, 9)], axis=1)
    found.append(Case("extreme x", (streams, kv, q, k, eps, root)))
    keys = np.stack([np.roll(wild, shift, axis=0) for shift in (0, 1, 5, 8, 2)], axis=1).reshape(16, -1)
    found.append(Case("extreme keys", (streams, keys, q, k, eps, root)))
    zero = np.zeros((4, 128), np.uint16)
    found.append(Case("zero weights", (streams[:3], kv[:3], zero, k, eps, root)))
    draw = inputs.Draw(6)
    patterns = draw.any_bf16(8, 4, 128), draw.any_bf16(8, 5 * 128), draw.any_bf16(4, 128), draw.any_bf16(4, 128)
    found.append(Case("every pattern", (*patterns, eps, root), bounded=False))
    # products near the smallest normal, of both signs
    small = tuple(draw.bf16(*shape, scale=2.0**-33) for shape in ((8, 4, 128), (8, 5 * 128), (4, 128), (4, 128)))
    found.append(Case("tiny", (*small, eps, root), bounded=False))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "engram_inject": ("x", "kv"),
}
