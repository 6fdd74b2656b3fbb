"""What several test folders share: cut checkpoints, cut traces, comparisons. Knows nothing of the network."""
