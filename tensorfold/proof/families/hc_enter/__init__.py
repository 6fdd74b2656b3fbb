"""Proof of what stands before a sublayer as one launch: mix, collapse, norm, quantise."""
