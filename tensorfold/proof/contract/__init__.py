"""The kernel contract: checks kernels' source, values, order and containment, and that planted mistakes are seen.

`python -m tensorfold.contract` runs it. Knows no model.
"""
