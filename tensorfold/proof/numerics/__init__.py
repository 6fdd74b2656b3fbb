"""Twins in numpy of what kernels compute with, operation for operation, and the inputs of trials. Knows no kernel."""
