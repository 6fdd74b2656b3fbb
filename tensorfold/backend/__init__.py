"""Backends: the operations that the network asks for, and what carries them out."""
