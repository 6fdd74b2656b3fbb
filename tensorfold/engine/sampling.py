"""Sampling as the rest of the engine sees it: checked choices, rows of them, the keyed pick, stop strings."""

from tensorfold.engine.noise import log_noise
from tensorfold.engine.params import KEYWORDS, SamplingParams, parse
from tensorfold.engine.pick import Picked, pick
from tensorfold.engine.rows import RowParams
from tensorfold.engine.stops import StopMatcher

__all__ = [
    "KEYWORDS",
    "Picked",
    "RowParams",
    "SamplingParams",
    "StopMatcher",
    "log_noise",
    "parse",
    "pick",
]
