"""Proof of attention with a sink over packed window and compressed rows, in two launches: scores, then values."""
