"""Philox 4x32-10 in numpy: the twin of `philox.h`. Knows no sampling.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def philox(counter: ArrayLike, key: ArrayLike) -> NDArray[np.uint32]:
    """Counter uint32 [..., 4] and key uint32 [..., 2] -> four random words uint32 [..., 4]."""
    c = [np.asarray(counter, np.uint64)[..., i] for i in range(4)]
    k = [np.asarray(key, np.uint64)[..., i] for i in range(2)]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(second >> np.uint64(32)) ^ c[1] ^ k[0], second & low, (first >> np.uint64(32)) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(np.broadcast_arrays(*c), axis=-1).astype(np.uint32)
