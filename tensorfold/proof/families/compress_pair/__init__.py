"""Proof of the two tokens of a ratio-2 group pooled before the norm."""
