"""Proof of the mean of a row's streams, which the drafter taps."""
