"""Index scores of rows against packed keys by place. Knows no slot."""

from tensorfold.kernels.index_scores.plan import KERNELS, index_scores

__all__ = ["KERNELS", "index_scores"]
