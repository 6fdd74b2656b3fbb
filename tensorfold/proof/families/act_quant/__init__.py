"""Proof of activations to FP8 or FP4 in blocks with a scale each."""
