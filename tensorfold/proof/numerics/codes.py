"""FP8, FP4 and power-of-two scale codes in numpy: the twin of `codes.h`, bit for bit. Knows no layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorfold.codes import E2M1, E4M3, UE8M0
from tensorfold.proof.numerics.exact import F32, bits, f32, from_bits

__all__ = [
    "E2M1", "E4M3", "UE8M0", "ceil_ue8m0", "inverse_ue8m0", "pack_nibbles", "to_e2m1", "to_e4m3", "unpack_nibbles",
]  # fmt: skip


def to_e4m3(x: ArrayLike) -> NDArray[np.uint8]:
    """Round to nearest even, clamped to 448; NaN is 0x7f: `p_to_e4m3`."""
    u = bits(x)
    magnitude, sign = u & 0x7FFFFFFF, (u >> 24) & 0x80
    tiny = magnitude < 0x3C800000
    small = np.rint(from_bits(np.where(tiny, magnitude, 0)) * f32(512)).astype(np.int64)
    clamped = np.minimum(magnitude, np.uint32(0x43E00000))
    normal = ((clamped + 0x7FFFF + ((clamped >> 20) & 1)) >> 20).astype(np.int64) - 960
    code = np.where(tiny, small, normal) | sign
    return np.where(magnitude > 0x7F800000, 0x7F, code).astype(np.uint8)


def to_e2m1(x: ArrayLike) -> NDArray[np.uint8]:
    """Ties to the even code, clamped to 6; NaN gives code 7 (the scale carries the NaN): `p_to_e2m1`."""
    u = bits(x)
    magnitude = u & 0x7FFFFFFF
    edges = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], f32).view(np.uint32)
    code = np.zeros(magnitude.shape, np.uint32)
    for index, edge in enumerate(edges):
        code += magnitude >= edge if index % 2 else magnitude > edge
    return (code | ((u >> 28) & 8)).astype(np.uint8)


def ceil_ue8m0(a: ArrayLike) -> NDArray[np.uint8]:
    """The byte of the smallest power of two >= a; 255 for infinity and NaN: `p_ceil_ue8m0`."""
    u = bits(a) & 0x7FFFFFFF
    return np.minimum((u >> 23) + ((u & 0x7FFFFF) != 0), 255).astype(np.uint8)


def inverse_ue8m0(byte: NDArray[np.uint8]) -> F32:
    """2^(127 - byte) for bytes 1..253: `p_inverse_ue8m0`."""
    return from_bits((254 - byte.astype(np.uint32)) << 23)


def pack_nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[..., n] codes of 4 bits -> [..., n / 2] bytes, even index in the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def unpack_nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[..., n] bytes -> [..., 2 n] codes of 4 bits."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
