"""Proof of queries' and keys' norms with what follows each, in one launch: FP8 planes and packed window rows."""
