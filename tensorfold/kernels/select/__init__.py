"""Selection of the best rows by integer keys. Knows no indexer."""

from tensorfold.kernels.select.plan import KERNELS, select

__all__ = ["KERNELS", "select"]
