"""Proof of the gathered experts' matrices, FP4 read where they lie."""
