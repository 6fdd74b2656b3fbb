"""Proof of what stands after the experts as one launch, alone or with what the next mix adds."""
