"""Proof of the streams collapsed to one and normed."""
