"""Non-negative least squares for a handful of columns."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nnls(a: Array, b: Array) -> Array:
    """The x ≥ 0 [n] that minimises ‖a·x − b‖, for a [m, n]; active sets after Lawson and Hanson (1974), chapter 23.

    Columns are scaled to length 1 first, for seconds stand beside seconds per token; a column of zeros gets 0.
    """
    scale = np.linalg.norm(a, axis=0)
    scale[scale == 0] = 1.0
    a = a / scale
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], dtype=bool)
    slack = 1e-10 * max(1.0, float(np.linalg.norm(b)))
    for _ in range(10 * a.shape[1]):
        gain = np.where(free, -np.inf, a.T @ (b - a @ x))
        if free.all() or gain.max() <= slack:
            break
        free[int(gain.argmax())] = True
        x = _settled(a, b, x, free)
    return np.asarray(x / scale)


def _settled(a: Array, b: Array, x: Array, free: NDArray[np.bool_]) -> Array:
    """From x to the best over the free columns; those that would go below zero are bound again, in `free` too."""
    while free.any():
        wanted = np.zeros_like(x)
        wanted[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        low = free & (wanted <= 0)
        if not low.any():
            return wanted
        way = x[low] / np.maximum(x[low] - wanted[low], 1e-300)
        x = x + float(way.min()) * (wanted - x)
        free &= x > 1e-14
        x = np.where(free, x, 0.0)
    return np.zeros_like(x)
