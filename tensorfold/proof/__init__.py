"""What judges kernels: a host that compiles and emulates them, and the contract. README.md says what gates prove.

A model imports nothing of it, unless it is loaded with `backend="host"`. Knows no model.
"""
