"""Proof of the routed experts' and the shared expert's matrices in one launch."""
