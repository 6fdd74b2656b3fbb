"""Proof of rotary position embedding by a table from the host."""
