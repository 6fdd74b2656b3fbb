"""Proof of matrices times a few rows: FP8 in 32x32 blocks and bfloat16."""
