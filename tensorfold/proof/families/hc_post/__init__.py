"""Proof of A sublayer's output spread over the mixed streams, alone or with what the next mix adds."""
