"""Proof of SwiGLU with clamps and the routing weight before the rounding."""
