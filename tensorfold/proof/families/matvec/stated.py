"""matvec_*: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.act_quant.stated import act_quant_fp8_planes
from tensorfold.proof.numerics.codes import E4M3, UE8M0
from tensorfold.proof.numerics.exact import F32, f32, fma, load, running_sums, store_bf16, store_f32, tree_sum

BLOCK, CHUNK, DENSE_CHUNK = 32, 16, 8  # elements that share a scale; of one chain of products, FP8 and bfloat16


def rows_of(x: Array, k: int) -> Array:
    """x as loaded, [rows, G, K]."""
    if x.dtype == np.uint16:
        return x.reshape(len(x), -1, k)
    return np.moveaxis(x.reshape(len(x), -1, 4, k // CHUNK, 4), 2, 3).reshape(len(x), -1, k)


def scaled(s: Array, n: int, each: int) -> F32:
    """Scale values by row of w and run of K: [n, K / each]."""
    return np.repeat(np.repeat(UE8M0[s], BLOCK, 0)[:n], BLOCK // each, 1)


def matvec_fp8(*arrays: Array, out: str = "bfloat16") -> list[Array]:
    """float32, in the order of fp8.h and tile.h."""
    *pairs, x = arrays
    store = store_bf16 if out == "bfloat16" else store_f32
    found = []
    for w, s in zip(pairs[0::2], pairs[1::2]):
        n, k = w.shape
        v = load(rows_of(x, k))
        codes, scales = E4M3[w].reshape(v.shape[1], -1, k), scaled(s, n, CHUNK).reshape(v.shape[1], -1, k // CHUNK)
        y = [blocked(codes[g], scales[g], v[:, g], CHUNK) for g in range(v.shape[1])]
        found.append(store(np.concatenate(y, -1)))
    return found


matvec_fp8_pair = matvec_fp8


def matvec_bf16(w: Array, x: Array, out: str = "float32") -> list[Array]:
    """float32, in the order of the source."""
    y = chained(load(w), load(x), DENSE_CHUNK)
    return [store_bf16(y) if out == "bfloat16" else store_f32(y)]


def matvec_fp8_quantised(*arrays: Array, width: int = 16) -> list[Array]:
    """matvec_fp8, then act_quant_fp8_planes."""
    return act_quant_fp8_planes(matvec_fp8(*arrays)[0])


def blocked(w: F32, scales: F32, x: F32, chunk: int) -> F32:
    """w [N, K], scales [N, K / chunk], x [R, K] -> [R, N]: products of a chunk in a chain, scaled sums, the tree."""
    n, k = w.shape
    rows, chunks, vl = len(x), k // chunk, running_sums(k // chunk)
    a, b = w.reshape(1, n, chunks, chunk), x.reshape(rows, 1, chunks, chunk)
    with np.errstate(all="ignore"):
        p = (a[..., 0] * b[..., 0]).astype(f32)
    for i in range(1, chunk):
        p = fma(a[..., i], b[..., i], p)
    acc = np.zeros((rows, n, vl), f32)
    for c in range(0, chunks, vl):
        acc = fma(p[:, :, c : c + vl], scales[None, :, c : c + vl], acc)
    return tree_sum(acc)


def chained(w: F32, x: F32, chunk: int) -> F32:
    """w [N, K], x [R, K] -> [R, N]: one chain of fma a running sum, the tree."""
    n, k = w.shape
    rows, vl = len(x), running_sums(k // chunk)
    a, b = w.reshape(1, n, -1, vl, chunk), x.reshape(rows, 1, -1, vl, chunk)
    acc = np.zeros((rows, n, vl), f32)
    for t in range(a.shape[2]):
        for i in range(chunk):
            acc = fma(a[:, :, t, :, i], b[:, :, t, :, i], acc)
    return tree_sum(acc)
