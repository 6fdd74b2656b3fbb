"""Values of FP8, FP4 and power-of-two scale codes, by code: one table each, for whoever decodes. Knows no layout.

e4m3: 0x7f and 0xff are NaN, largest 448. e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6 and a sign. UE8M0: 2^(byte - 127), byte 0 is
scale zero, 255 is NaN. Source: docs/model.md#numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _e4m3() -> NDArray[np.float32]:
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    magnitude = np.where(code & 127 == 127, np.nan, magnitude)
    return np.copysign(magnitude, np.where(code > 127, -1.0, 1.0)).astype(np.float32)


def _ue8m0() -> NDArray[np.float32]:
    values = np.zeros(256, np.float32)
    values[1:255] = np.ldexp(1.0, np.arange(1, 255) - 127)
    values[255] = np.nan
    return values


E4M3 = _e4m3()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
UE8M0 = _ue8m0()
