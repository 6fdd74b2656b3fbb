"""moe_join: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import flush, load, store_bf16


def moe_join(routed: Array, shared: Array) -> list[Array]:
    """float32, experts in the order given, the shared one last."""
    v = load(routed)
    total = v[:, 0]
    with np.errstate(all="ignore"):
        for i in range(1, v.shape[1]):
            total = flush(total + v[:, i])
        return [store_bf16(total + load(shared))]
