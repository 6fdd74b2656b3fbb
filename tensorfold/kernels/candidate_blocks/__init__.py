"""The best score of each block of a row, and with `select` the flags of the best blocks. Knows no indexer."""

from tensorfold.kernels.candidate_blocks.plan import KERNELS, candidate_blocks

__all__ = ["KERNELS", "candidate_blocks"]
