"""Proof of the best score of each block of a row, and with `select` the flags of the best blocks."""
