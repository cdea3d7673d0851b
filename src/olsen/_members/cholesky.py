"""Cholesky factors of Gram matrices: trusted ones, and ones that jitter makes definite."""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.moments import mirror_lower
from .._trust import SMALLEST_PIVOT

Array = NDArray[np.float64]

JITTER = 1e-8  # fraction of its diagonal that makes a Gram matrix of dependent columns definite


def ones_for_constants(G: Array) -> Array:
    """Gram matrix with a diagonal entry of one for columns of zeros, whose coefficient is then
    zero.
    """
    zero = np.diagonal(G) <= 0
    return G + np.diag(zero.astype(float)) if zero.any() else G


def trusted_cholesky(G: Array) -> Array | None:
    """Lower factor of a Gram matrix, or None where a pivot says that the matrix is not trusted."""
    G = ones_for_constants(G)
    L, info = la.lapack.dpotrf(G, lower=True, clean=True)
    if info or not np.min(np.diagonal(L) ** 2 / np.diagonal(G), initial=1.0) >= SMALLEST_PIVOT:
        return None
    return np.asarray(L)


def inverse(G: Array) -> tuple[Array, float]:
    """Inverse of a Gram matrix without columns of zeros, and its largest variance inflation factor.

    The factors are the diagonal entries in units of the columns, infinite without an inverse.
    """
    # G is symmetric; its transpose needs no reordering
    L, info = la.lapack.dpotrf(G.T, lower=True, clean=False)
    if info:
        return G, np.inf
    P, info = la.lapack.dpotri(L, lower=True, overwrite_c=True)
    P = mirror_lower(P).T
    return P, float(np.max(np.diagonal(P) * np.diagonal(G), initial=0.0))
