"""Proof of the experts' outputs and the shared one's, added."""
