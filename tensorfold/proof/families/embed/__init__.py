"""Proof of rows of the embedding table by token id."""
