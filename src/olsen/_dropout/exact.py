r"""Limit of dropout in closed form, without drawing masks.

A mask keeps column j with probability :math:`\alpha_j` and, once j is kept, another column l with
probability
:math:`\kappa_l`: :math:`\kappa = \alpha` for coin flips, :math:`\kappa = (m - 1)/(p - 1)` for masks of m columns. The
expected loss :math:`E\|X S S' b - y\|^2` is least where

.. math:: \left(G K + \mathrm{diag}(G) (I - K)\right) b = X'y , \qquad G = X'X , \quad K = \mathrm{diag}(\kappa) .

Status: exact, for any data; equation (38) of the paper is the case :math:`K = A`. In
the coordinates
:math:`z = K^{1/2} \mathrm{diag}(G)^{1/2} b` the matrix is

.. math:: N = K^{1/2} R K^{1/2} + I - K ,

R the correlations of the columns. N has a unit diagonal and no eigenvalue below :math:`1 - \max
\kappa`, so unless columns are kept almost always it is far better conditioned than G.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.rows import RowData
from .._execution import memory
from .._execution.arrays import row_products
from .._members import orthogonal
from .._trust import Cutoff, rounding_of_factors

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK_BYTES = 1 << 25  # size of a dense block of columns
_INSTEAD = "Use solver='sgd', which needs a few mini-batches of rows only, or fewer columns."


class Masks(NamedTuple):
    """Distribution of the masks."""

    inclusion: NDArray[np.float64]  # (p,) alpha: probability that a column is kept
    # (p,) kappa: that probability, conditional on another column being kept
    partner: NDArray[np.float64]
    size: int | None  # columns in every mask; None: coin flips


def solve(problem: RowData, masks: Masks) -> NDArray[np.float64]:
    """Minimiser (p, q) of the expected loss; columns that are never kept or do not vary get zero.

    ======================  =====================================================================
    rows >= columns         Cholesky of N, p x p
    rows < columns          the same solution from an n x n matrix (Woodbury)
    either ill-conditioned  QR of the data over the root of the penalty, minimum norm if dependent;
                            also where there are more columns than rows and some are always kept
    ======================  =====================================================================
    """
    n, p = problem.shape
    coef = np.zeros((p, problem.Y.shape[1]))
    columns = np.flatnonzero(masks.inclusion > 0)
    if len(columns) < p:
        problem = replace(problem, X=problem.X[:, columns])
    kappa = masks.partner[columns]
    if n >= len(columns):
        coef[columns] = _column_side(problem, kappa)
    elif (kappa == 1).any():
        coef[columns] = _from_data(problem, kappa)
    else:
        coef[columns] = _row_side(problem, kappa)
    return coef


def column_blocks(problem: RowData) -> Iterator[tuple[Indices, Array]]:
    """Columns in dense blocks, each with its (n, width) centred and weighted values."""
    n, p = problem.shape
    width = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, p, width):
        columns = np.arange(start, min(start + width, p))
        yield columns, problem.submatrix(columns, None).A


def _column_side(problem: RowData, kappa: Array) -> Array:
    """Minimiser of the expected loss from the p x p matrix N."""
    p = problem.shape[1]
    memory.require(24.0 * p * p, f"The expected Gram matrix of {p} columns", _INSTEAD)
    moments = problem.moments
    length = np.sqrt(np.diagonal(moments.G))
    live = np.flatnonzero(length > 0)
    coef = np.zeros(moments.C.shape)
    if not kappa.any():  # one column at a time: p separate regressions
        coef[live] = moments.C[live] / length[live, None] ** 2
        return coef
    kappa = kappa[live]
    length = length[live]
    unit = np.sqrt(kappa) / length
    N = moments.G[np.ix_(live, live)] * np.outer(unit, unit)
    np.fill_diagonal(N, 1.0)
    L = _trusted_factor(N)
    if L is None:
        coef[live] = _from_data(replace(problem, X=problem.X[:, live]), kappa)
    else:
        z = la.cho_solve((L, True), unit[:, None] * moments.C[live])
        coef[live] = z / (length * np.sqrt(kappa))[:, None]
    return coef


def _trusted_factor(N: Array) -> Array | None:
    """Cholesky factor of N, or None if N is not definite or its reciprocal condition number is
    below 1e-7.
    """
    if not len(N):
        return N
    L, info = la.lapack.dpotrf(N, lower=True, clean=False)
    if info:
        return None
    reciprocal_condition = la.lapack.dpocon(L, la.norm(N, 1), uplo="L")[0]
    return np.asarray(L) if reciprocal_condition >= 1e-7 else None


def _from_data(problem: RowData, kappa: Array) -> Array:
    r"""Minimise :math:`\|X K b - y\|^2 + \sum_j \kappa_j (1 - \kappa_j) G_{jj} b_j^2` by QR, no
    Gram matrix formed.

    Only columns with :math:`\kappa_j = 1` can be dependent here; their coefficients are those of
    minimum norm.
    """
    n, p = problem.shape
    n_penalised = np.count_nonzero(kappa < 1)
    memory.require(
        32.0 * (n + n_penalised) * p,
        f"The orthogonal factorisation of {n} rows and {p} columns",
        _INSTEAD,
    )
    part = problem.submatrix(np.arange(p), None)
    A = part.A
    B = part.B
    root = part.root
    if problem.fit_intercept:
        # Centring leaves a component along the root weights at the rounding level of the raw
        # columns. For columns far from zero it is large enough to count as one more direction when
        # the rank is determined.
        A = A - np.outer(root, (root @ A) / (root @ root))
    ridge = np.linalg.norm(A, axis=0) * np.sqrt(kappa * (1 - kappa))
    stacked = np.vstack([A * kappa, np.diag(ridge)[kappa < 1]])
    targets = np.vstack([B, np.zeros((len(stacked) - n, B.shape[1]))])
    cutoff = Cutoff(rounding_of_factors(max(stacked.shape)))
    return orthogonal.least_squares(stacked, targets, cutoff)


def _row_side(problem: RowData, kappa: Array) -> Array:
    r"""Minimiser of the expected loss from n x n matrices; no column may be kept always.

    .. math:: V = I + X K E X' , \qquad b = E X' V^{-1} y , \qquad e_j = 1 / (G_{jj} (1 - \kappa_j)) .

    Centring leaves the rows without a component along the root weights; V is inflated there, which
    changes no solution and keeps the condition number that of the data.
    """
    n, p = problem.shape
    memory.require(24.0 * n * n, f"The Gram matrix of {n} rows", _INSTEAD)
    e = np.zeros(p)
    V = np.zeros((n, n))
    for columns, A in column_blocks(problem):
        penalty = (A * A).sum(axis=0) * (1 - kappa[columns])
        e[columns] = np.divide(1.0, penalty, out=np.zeros(len(columns)), where=penalty > 0)
        A = A * np.sqrt(kappa[columns] * e[columns])
        V += row_products(A)
    part = problem.submatrix(np.arange(0), None)  # the targets and the weights
    if problem.fit_intercept:
        V += (np.trace(V) / n) * np.outer(part.root, part.root) / (part.root @ part.root)
    V[np.diag_indices(n)] += 1.0
    L = _trusted_factor(V)
    if L is None:
        return _from_data(problem, kappa)
    coef = np.zeros((p, part.B.shape[1]))
    u = la.cho_solve((L, True), part.B)
    for columns, A in column_blocks(problem):
        coef[columns] = e[columns, None] * (A.T @ u)
    return coef
