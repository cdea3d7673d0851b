r"""What dropout converges to, without drawing a single mask.

A mask keeps column j with probability :math:`\alpha_j` and, once j is kept, another column l with probability
:math:`\kappa_l`: :math:`\kappa = \alpha` for coin flips, :math:`\kappa = (m - 1)/(p - 1)` for masks of m columns. The
expected loss :math:`E\|X S S' b - y\|^2` is least where

.. math:: \left(G K + \mathrm{diag}(G) (I - K)\right) b = X'y , \qquad G = X'X , \quad K = \mathrm{diag}(\kappa) .

Status: exact, for any data; eq. (generalized-dropout) of the paper is the case :math:`K = A`. In the coordinates
:math:`z = K^{1/2} \mathrm{diag}(G)^{1/2} b` the matrix is

.. math:: N = K^{1/2} R K^{1/2} + I - K ,

R the correlations of the columns. N has a unit diagonal and no eigenvalue below :math:`1 - \max \kappa`, so unless
columns are kept almost always it is far better conditioned than G.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._members import Problem, orthogonal
from .._members.problem import Submatrix
from .._moments import Triangle, weighted_mean
from .._trust import Cutoff

__all__ = ["MaskLaw", "column_blocks", "solve"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

TRUST = 1e-7  # reciprocal condition number above which a factored Gram matrix is believed
_BLOCK_BYTES = 1 << 25
_INSTEAD = "Use solver='sgd', which needs a few mini-batches of rows only, or fewer columns."


class MaskLaw(NamedTuple):
    """How masks are drawn."""

    inclusion: NDArray[np.float64]  # (p,) alpha: probability that a column is kept
    partner: NDArray[np.float64]  # (p,) kappa: the same, given that some other column is kept
    size: int | None  # columns in every mask; None: coin flips


def solve(problem: Problem, law: MaskLaw) -> NDArray[np.float64]:
    """Minimiser (p, q) of the expected loss; columns that are never kept or do not vary get zero.

    ======================  =====================================================================
    rows >= columns         Cholesky of N, p x p
    rows < columns          the same solution from an n x n matrix (Woodbury)
    either ill-conditioned  QR of the data over the root of the penalty, minimum norm if dependent
    ======================  =====================================================================
    """
    n, p = problem.shape
    coef = np.zeros((p, problem.Y.shape[1]))
    kept = np.flatnonzero(law.inclusion > 0)
    if len(kept) < p:
        problem = replace(problem, X=problem.X[:, kept])
    coef[kept] = _column_side(problem, law.partner[kept]) if n >= len(kept) else _row_side(problem, law.partner[kept])
    return coef


def column_blocks(problem: Problem, columns: Indices | None = None) -> Iterator[tuple[Indices, Array]]:
    """Columns in dense blocks, each with its (n, width) centred and weighted values."""
    n, p = problem.shape
    columns = np.arange(p) if columns is None else columns
    width = max(1, _BLOCK_BYTES // (8 * n))
    for start in range(0, len(columns), width):
        here = columns[start : start + width]
        yield here, problem.submatrix(here, None).A


# More rows than columns


def _column_side(problem: Problem, kappa: Array) -> Array:
    p = problem.shape[1]
    memory.require(24.0 * p * p, f"The expected Gram matrix of {p} columns", _INSTEAD)
    moments = problem.moments
    length = np.sqrt(np.diagonal(moments.G))
    live = np.flatnonzero(length > 0)
    coef = np.zeros(moments.C.shape)
    if not kappa.any():  # one column at a time: p separate regressions
        coef[live] = moments.C[live] / length[live, None] ** 2
        return coef
    kappa, length = kappa[live], length[live]
    unit = np.sqrt(kappa) / length
    N = moments.G[np.ix_(live, live)] * np.outer(unit, unit)
    np.fill_diagonal(N, 1.0)
    z = _trusted_solve(N, unit[:, None] * moments.C[live])
    if z is None:
        part = problem if len(live) == p else replace(problem, X=problem.X[:, live])
        coef[live] = _from_data(part, kappa)
    else:
        coef[live] = z / (length * np.sqrt(kappa))[:, None]
    return coef


def _trusted_solve(N: Array, B: Array) -> Array | None:
    """Solution of N z = B for a definite N, or None where its factor is not to be trusted."""
    factor = _trusted_factor(N)
    return None if factor is None else la.cho_solve((factor, True), B)


def _trusted_factor(N: Array) -> Array | None:
    L: Array
    if not len(N):
        return N
    L, info = la.lapack.dpotrf(N, lower=True, clean=False)
    if info or la.lapack.dpocon(L, la.norm(N, 1), uplo="L")[0] < TRUST:
        return None
    return L


def _from_data(problem: Problem, kappa: Array) -> Array:
    r"""Minimise :math:`\|X K b - y\|^2 + \sum_j \kappa_j (1 - \kappa_j) G_{jj} b_j^2` by QR, no Gram matrix formed.

    Only columns with :math:`\kappa_j = 1` can be dependent here; among them the shortest coefficients are taken.
    """
    n, p = problem.shape
    memory.require(32.0 * (min(n, p) + p) * p, f"The orthogonal factorisation of {n} rows and {p} columns", _INSTEAD)
    A, B = _small_dense(problem)
    ridge = np.linalg.norm(A, axis=0) * np.sqrt(kappa * (1 - kappa))
    stacked = np.vstack([A * kappa, np.diag(ridge)[kappa < 1]])
    return orthogonal.least_squares(
        stacked, np.vstack([B, np.zeros((len(stacked) - len(B), B.shape[1]))]), _cutoff(problem)
    )


def _cutoff(problem: Problem) -> Cutoff | None:
    return None if problem.rcond is None else Cutoff(problem.rcond)


def _small_dense(problem: Problem) -> tuple[Array, Array]:
    """Centred, weighted X and Y; of sparse data with many rows only their triangular factor, folded in row blocks."""
    n, p = problem.shape
    if not sp.issparse(problem.X) or n <= 2 * p:
        part = problem.submatrix(np.arange(p), None)
        return _without(part.A, part.root if problem.fit_intercept else None), part.B
    triangle = Triangle.empty(p, problem.Y.shape[1])
    rows = max(2 * p, _BLOCK_BYTES // (8 * p))
    for start in range(0, n, rows):
        some = problem.take(np.arange(start, min(start + rows, n)))
        triangle = triangle.add(some.X, some.Y, some.weight, problem.fit_intercept)
    small = triangle.centred(problem.fit_intercept)
    return small.X, small.Y


# More columns than rows


def _row_side(problem: Problem, kappa: Array) -> Array:
    r"""The same minimiser from n x n matrices.

    With :math:`e_j = 1 / (G_{jj} (1 - \kappa_j))` over the columns P that can be missing, U those that never are,

    .. math:: V = I + X_P K E X_P' , \quad b_U = (V^{-1/2} X_U)^+ V^{-1/2} y , \quad b_P = E X_P' V^{-1} (y - X_U b_U) .
    """
    n, p = problem.shape
    memory.require(24.0 * n * n, f"The Gram matrix of {n} rows", _INSTEAD)
    squares = np.concatenate([(A * A).sum(axis=0) for _, A in column_blocks(problem)])
    loose = np.flatnonzero((kappa < 1) & (squares > 0))
    fixed = np.flatnonzero((kappa == 1) & (squares > 0))
    e = np.zeros(p)
    e[loose] = 1 / (squares[loose] * (1 - kappa[loose]))
    part = problem.submatrix(fixed, None)  # U; also the targets and the weights
    L = _trusted_factor(_row_gram(problem, loose, kappa * e, squares, part.root))
    coef = np.zeros((p, part.B.shape[1]))
    if L is None:
        live = np.sort(np.concatenate([loose, fixed]))
        coef[live] = _from_data(replace(problem, X=problem.X[:, live]), kappa[live])
        return coef
    coef[fixed] = _generalised(L, part, problem)
    u = la.cho_solve((L, True), part.B - part.A @ coef[fixed])
    for here, A in column_blocks(problem, loose):
        coef[here] = e[here, None] * (A.T @ u)
    return coef


def _row_gram(problem: Problem, columns: Indices, weight: Array, squares: Array, root: Array) -> Array:
    """V: the identity plus the weighted products of the centred rows.

    Centring leaves the rows without a component along the root weights; V is inflated there, which changes no solution
    and keeps the condition number that of the data.
    """
    n = len(root)
    V = np.zeros((n, n))
    if sp.issparse(problem.X):
        safe = _far_from_constant(problem, columns, squares)
        V += _sparse_row_gram(problem, columns[safe], weight, root)
        columns = columns[~safe]
    for here, A in column_blocks(problem, columns):
        A = A * np.sqrt(weight[here])
        V += A @ A.T
    if problem.fit_intercept:
        V += (np.trace(V) / n) * np.outer(root, root) / (root @ root)
    V[np.diag_indices(n)] += 1.0
    return V


def _far_from_constant(problem: Problem, columns: Indices, squares: Array) -> NDArray[np.bool_]:
    """Columns whose centring does not cancel leading digits, so that it may be done on the finished product."""
    if not problem.fit_intercept:
        return np.ones(len(columns), dtype=bool)
    total = problem.shape[0] if problem.weight is None else problem.weight.sum()
    mean: Array = weighted_mean(problem.X, problem.weight)[columns]
    return squares[columns] > 1e-3 * total * mean**2


def _sparse_row_gram(problem: Problem, columns: Indices, weight: Array, root: Array) -> Array:
    Z = sp.csr_array(problem.X[:, columns].astype(np.float64)).multiply(np.sqrt(weight[columns])[None, :]).tocsr()
    K = np.asarray((Z @ Z.T).todense())
    if problem.fit_intercept:  # take the weighted mean out of both sides
        share = root**2 / (root @ root)
        K -= (share @ K)[None, :]
        K -= (K @ share)[:, None]
    return K * np.outer(root, root)


def _generalised(L: Array, part: Submatrix, problem: Problem) -> Array:
    """Least squares of columns that are always kept, residuals weighted by V = L L'."""
    if part.A.shape[1] == 0:
        return np.zeros((0, part.B.shape[1]))
    A, B = (la.solve_triangular(L, M, lower=True) for M in (part.A, part.B))
    rows, columns = A.shape
    null = np.tril(L).T @ part.root if problem.fit_intercept else None
    if columns >= rows:
        coef = orthogonal.minimum_norm(A, B, null)
        if coef is not None:
            return coef
        memory.require(16.0 * columns**2, f"The singular vectors of {columns} columns that are always kept", _INSTEAD)
    return orthogonal.least_squares(_without(A, null), B, _cutoff(problem))


def _without(A: Array, null: Array | None) -> Array:
    """Columns without their component along `null`, which centring leaves at rounding level of the *raw* columns.

    For columns far from zero that is enough to look like one more direction when the rank is decided.
    """
    return A if null is None else A - np.outer(null, (null @ A) / (null @ null))
