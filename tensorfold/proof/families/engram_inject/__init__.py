"""Proof of Engram's value added to every stream through a gate."""
