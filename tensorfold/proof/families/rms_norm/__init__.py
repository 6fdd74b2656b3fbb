"""Proof of RMSNorm over the last axis."""
