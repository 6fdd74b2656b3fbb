"""Proof of selection of the best rows by integer keys."""
