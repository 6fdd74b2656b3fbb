"""Proof of the pick in two launches: the best token of each part, then the best part."""
