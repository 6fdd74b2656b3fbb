"""Proof of SwiGLU of routed and shared experts, quantised for the next matrices in the same launch."""
