r"""Solutions from a Gram matrix of nearly dependent columns, refined on the data.

The factor of G knows its columns to about eps times the largest entry of the inverse correlation matrix, the square of
what a QR would lose. Steps with residuals from the data (the corrected seminormal equations of Björck, 1987)

.. math:: r = y - A b , \qquad b \leftarrow b + G^{-1} A' r

shrink that error by the same factor each, for the price of two products with A, and end where a QR would. Status:
exact, as far as the inverse is known at all: ``LARGEST_REFINABLE`` leaves a factor of about 1e-5 a step.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..._trust import LARGEST_INFLATION, LARGEST_REFINABLE, SMALLEST_PIVOT
from .factor import JIT, solve_lower, solve_upper

__all__ = ["needs_data", "refine"]

MOST_STEPS = 6
UNSEEN = 1e-16  # of the largest coefficient: steps that change nothing


@njit(**JIT)
def needs_data(ratio, probed):
    """Whether a member is not to be solved from its Gram matrix alone."""
    return ratio > 0.0 and not (ratio > SMALLEST_PIVOT and probed < LARGEST_INFLATION)


@njit(**JIT)
def _dot(a, b):
    """Inner product, in four sums side by side."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = a.size // 4 * 4
    for l in range(0, whole, 4):
        s0 += a[l] * b[l]
        s1 += a[l + 1] * b[l + 1]
        s2 += a[l + 2] * b[l + 2]
        s3 += a[l + 3] * b[l + 3]
    for l in range(whole, a.size):
        s0 += a[l] * b[l]
    return (s0 + s1) + (s2 + s3)


@njit(**JIT)
def refine(work, m, q, A, own, Y, lengths, values, probed, spare):
    """Refine ``values`` (m, targets) on columns ``A`` and targets ``Y``, centred and root-weighted alike.

    Returns whether the solution is then to be believed. ``spare`` is the offset of room for one solution.
    """
    if not probed < LARGEST_REFINABLE:
        return False
    n = A.shape[1]
    residual, right, u = np.empty(n), np.empty(m), np.empty(m)
    for t in range(values.shape[1]):
        last = np.inf
        for _ in range(MOST_STEPS):
            for l in range(n):
                residual[l] = Y[l, t]
            largest = 0.0
            for j in range(m):
                factor, column = values[j, t], A[own[j]]
                largest = max(largest, abs(factor) * lengths[j])
                if factor != 0.0:
                    for l in range(n):
                        residual[l] -= factor * column[l]
            for j in range(m):
                right[j] = _dot(A[own[j]], residual)
            solve_lower(work, m, q, right, u)
            for j in range(m):
                work[spare + j] = u[j]
            work[spare + m : spare + m + 8] = 0.0
            solve_upper(work, m, q, spare)
            step = 0.0
            for j in range(m):
                step = max(step, abs(work[spare + j]) * lengths[j])
            if not step <= 0.5 * last:
                break  # rounding of the residual itself
            if last < np.inf and step > 1e-3 * last and step > 1e-8 * largest:
                return False  # the factor is worse than its probes have shown
            for j in range(m):
                values[j, t] += work[spare + j]
            last = step
            if step <= UNSEEN * largest:
                break
    return True
