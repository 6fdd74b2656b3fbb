"""Checkpoints of any size with random weights, to try the library on; nothing that runs a model imports this."""
