"""`python -m tensorfold.receipt`: one command that says what holds on this machine. Knows no compiler of its own.

On a Mac it needs nothing but this package, and a checkpoint: versions and chip, every kernel built and put through the
contract, its bits against the host's stored digests, the device's arithmetic, how long each kernel takes; then the
suite of a whole checkpoint: row law, laws of drafts, batches and resumed slots, bits end to end, memory, speed.
"""
