"""Routing: which experts a row goes to and with what weights. Knows no expert."""

from tensorfold.kernels.route.plan import KERNELS, route

__all__ = ["KERNELS", "route"]
