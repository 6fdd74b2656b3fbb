"""Rows of the embedding table by token id. Knows no tokenizer."""

from tensorfold.kernels.embed.plan import KERNELS, embed

__all__ = ["KERNELS", "embed"]
