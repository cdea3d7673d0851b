r"""Members on principal submatrices of a Gram matrix, by Cholesky.

.. math:: G_{SS}\, b = c_S , \qquad G_{SS} = L L'

The fastest way and the least accurate one: G squares the condition number of X. So every factor is watched in two ways.
The smallest pivot :math:`L_{jj}^2 / G_{jj}`, the share of column j that the columns before it leave unexplained, finds
columns that are dependent. It does not see those that *later* columns hide (on NIST's Wampler polynomials it is 3e-5
where the inverse has norm 6e5), so two random right-hand sides s are solved along: with :math:`D =
\mathrm{diag}(G)^{1/2}`, :math:`D G^{-1} D s` holds rows of the inverse correlation matrix, whose diagonal are the
variance inflation factors, times s. Members that fail may have lost more than five digits; they are solved again from
the data, never from this matrix, and counted.

**Complement form.** For subsets of more than half of the columns and a well-conditioned G, with :math:`P = G^{-1}`,
full solution :math:`b^0 = P c` and left-out columns C,

.. math:: b = b^0 - P_{:C} \, P_{CC}^{-1} \, b^0_C

which solves systems of size p - m instead of m. Status: exact.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.blas_threads import one_blas_thread
from .._execution.threads import Sharing
from .._moments import Moments, mirror_lower
from .._trust import LARGEST_COMPLEMENT_INFLATION, LARGEST_INFLATION, SMALLEST_PIVOT
from ..subsets import Subsets
from . import lapack, orthogonal
from .problem import Problem, Solution

__all__ = ["from_moments", "solve_own", "solve_shared"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

WORTH_COMPILING = 0.02  # seconds in LAPACK from which the compiled kernel is used


def solve_shared(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Sharing) -> Solution:
    """All members from the Gram matrix of all rows."""
    found = from_moments(problem.moments_by(mapper), features, mapper)
    return _mend(problem, features, None, found, mapper)


def from_moments(moments: Moments, features: Subsets, mapper: Sharing) -> Solution:
    """The same without a look at the data; members marked `refitted` are still to be solved again from there."""
    q = moments.C.shape[1]
    scale = np.sqrt(np.diagonal(moments.G))
    dead = scale == 0
    G = moments.G + np.diag(dead.astype(float)) if dead.any() else moments.G  # constant columns: coefficient zero

    def intercept_of(values: Array) -> Array:
        return moments.mean_y - _times(values, features, moments.mean_x)

    if _complement_pays(G, features):
        values = _complement(G, moments.C, scale, features, mapper)
        if values is not None:
            return Solution(values, intercept_of(values), np.zeros(len(features), dtype=bool), "gram")
    C = np.column_stack([moments.C, scale[:, None] * _probes(len(scale))])
    values, ratios, probed = _solve_principal(G, C, scale, q, features, mapper)
    doubtful = ~((ratios > SMALLEST_PIVOT) & (probed < LARGEST_INFLATION))
    return Solution(values, intercept_of(values), doubtful, "gram")


def solve_own(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Sharing) -> Solution:
    """Each member from the Gram matrix of its own rows and columns.

    The probes are further targets, of pure noise (over the roots of the weights, which the rows are multiplied by): a
    column's squared coefficient times its sum of squares is on average its variance inflation factor. Sums of squares
    are those of all rows, in proportion.
    """
    n = len(problem.Y)
    noise = _probes(n) if problem.weight is None else _probes(n) / np.sqrt(problem.weight)[:, None]
    Y = np.column_stack([problem.Y, noise])
    scale = np.sqrt(_mean_squares(problem))
    values, intercepts, ratios, probed = _solve_submatrices(problem, Y, scale, features, samples, mapper)
    rows = n if samples is None else samples.sizes
    doubtful = ~((ratios > SMALLEST_PIVOT) & (probed**2 * rows < LARGEST_INFLATION))
    return _mend(problem, features, samples, Solution(values, intercepts, doubtful, "member_gram"), mapper)


def _probes(size: int) -> Array:
    """Fixed random numbers: the same members are trusted whatever the seed of the ensemble."""
    return np.random.default_rng(20200608).standard_normal((size, 2))


def _mend(
    problem: Problem, features: Subsets, samples: Subsets | None, solution: Solution, mapper: Sharing
) -> Solution:
    """Solve doubtful members again from the data."""
    again = np.flatnonzero(solution.refitted)
    if len(again):
        rows = None if samples is None else samples.take(again)
        entries = (problem.shape[0] if rows is None else rows.sizes) * features.sizes[again]
        few = float(np.sum(entries)) <= orthogonal.LARGEST_REFINED  # nobody waits for them
        part = orthogonal.solve(problem, features.take(again), rows, mapper, refine=few)
        solution.put(again, features.sizes, part, refitted=True)
    return solution


def _times(values: Array, features: Subsets, vector: Array) -> Array:
    """Every member's coefficients times a vector over all columns: (k, q)."""
    shape = (len(features), features.n_items)
    return np.stack([sp.csr_array((v, features.indices, features.indptr), shape=shape) @ vector for v in values.T], 1)


def _mean_squares(problem: Problem) -> Array:
    """Weighted squares (about the means, with an intercept) a row of the columns, in a hundred rows: their order."""
    step = max(1, problem.shape[0] // 100)
    X: NDArray[Any] = problem.X[::step] if not sp.issparse(problem.X) else sp.csr_array(problem.X)[::step].toarray()
    if problem.weight is None:
        found = X.var(axis=0, dtype=np.float64) if problem.fit_intercept else np.mean(X * X, axis=0, dtype=np.float64)
        return np.asarray(found)
    weight = problem.weight[::step]
    X = X - weight @ X / weight.sum() if problem.fit_intercept else X
    return np.asarray(weight @ (X * X) / len(weight))


def _compiled(sizes: Indices, extra_flops: float | Array = 0.0) -> bool:
    """Whether the compiled kernel is there and worth its loading time."""
    seconds = np.sum(25e-6 + (sizes**3.0 / 3 + extra_flops) / 1e10)
    return bool(seconds > WORTH_COMPILING) and importlib.util.find_spec("numba") is not None


def _solve_principal(
    G: Array, C: Array, scale: Array, q: int, features: Subsets, mapper: Sharing
) -> tuple[Array, Array, Array]:
    """Solutions of the first q right-hand sides, pivot ratios, and the largest scaled entry of the other solutions."""
    if not _compiled(features.sizes):
        return lapack.solve_principal(G, C, scale, q, features, mapper)
    from ._kernel.principal import solve_principal

    kernel: Callable[..., None] = solve_principal
    k = len(features)
    out = np.empty((len(features.indices), q)), np.empty(k), np.empty(k)
    G, C = np.ascontiguousarray(G), np.ascontiguousarray(C)

    def work(start: int, stop: int) -> None:
        kernel(G, C, scale, features.indptr, features.indices, start, stop, out)

    mapper(work, k, uses_blas=False)
    return out


def _solve_submatrices(
    problem: Problem, Y: Array, scale: Array, features: Subsets, samples: Subsets | None, mapper: Sharing
) -> tuple[Array, Array, Array, Array]:
    (n, _), k, q = problem.shape, len(features), problem.Y.shape[1]
    rows = np.full(k, float(n)) if samples is None else samples.sizes.astype(float)
    small = not _compiled(features.sizes, rows * features.sizes**2.0)
    if small or sp.issparse(problem.X) or problem.X.dtype != np.float64:
        return lapack.solve_submatrices(problem, Y, scale, features, samples, mapper)
    from ._kernel.gathered import solve_gathered

    kernel: Callable[..., None] = solve_gathered
    out = np.empty((len(features.indices), q)), np.empty((k, q)), np.empty(k), np.empty(k)
    if samples is None:
        given, starts, stops = np.arange(n), np.zeros(k, np.int64), np.full(k, n)
    else:
        given, starts, stops = samples.indices, samples.indptr[:-1], samples.indptr[1:]
    weight = np.empty(0) if problem.weight is None else problem.weight[given]
    X, Y = _gatherable(problem.X, features, mapper), np.ascontiguousarray(Y)

    columns, centre = (features.indptr, features.indices), problem.fit_intercept

    def work(start: int, stop: int) -> None:
        kernel(X, Y, *columns, starts, stops, given, weight, scale, centre, start, stop, out)

    mapper(work, k, uses_blas=False)
    return out


def _gatherable(X: Array, features: Subsets, mapper: Sharing) -> Array:
    """Column order for wide data, where in row order every entry would be a cache line of its own."""
    if X.flags.f_contiguous or (X.flags.c_contiguous and X.shape[1] < 16 * features.sizes.mean()):
        return X
    memory.require(X.nbytes, "A copy of X in column order", "Pass X in Fortran order (numpy.asfortranarray).")
    copy = np.empty(X.shape, order="F")

    def work(start: int, stop: int) -> None:
        copy[:, start:stop] = X[:, start:stop]

    mapper.without_blas(work, X.shape[1])
    return copy


def _complement_pays(G: Array, features: Subsets) -> bool:
    """Whether solving for the left-out columns is less work: p^3 + k ((p-m)^3/3 + 2 p^2) against k m^3/3."""
    p, k, m = len(G), len(features), features.sizes
    return bool(p**3 + np.sum((p - m) ** 3.0 / 3) + 2.0 * k * p**2 < np.sum(m**3.0 / 3))


def _complement(G: Array, C: Array, scale: Array, features: Subsets, mapper: Sharing) -> Array | None:
    """The complement form, or None where G is not well-conditioned enough for its inverse.

    The diagonal of the inverse holds the variance inflation factors of all columns together, which bound those of every
    subset: no member needs a probe of its own.
    """
    with one_blas_thread():  # whatever the threads of members: results should not depend on them
        return _complement_values(G, C, scale, features, mapper)


def _complement_values(G: Array, C: Array, scale: Array, features: Subsets, mapper: Sharing) -> Array | None:
    L, info = la.lapack.dpotrf(G.T, lower=True, clean=False)  # G is symmetric; its transpose needs no reordering
    if info:
        return None
    P, info = la.lapack.dpotri(L, lower=True, overwrite_c=True)
    P = mirror_lower(P).T
    if info or not np.max(np.diagonal(P) * np.where(scale > 0, scale, 1.0) ** 2) < LARGEST_COMPLEMENT_INFLATION:
        return None
    full = P @ C  # (p, q)
    left_out = features.complement()
    y, _, _ = _solve_principal(P, full, scale, full.shape[1], left_out, mapper)
    values = np.empty((len(features.indices), C.shape[1]))

    def work(start: int, stop: int) -> None:
        kept, out = features.slice(start, stop), left_out.slice(start, stop)
        here, there = (slice(s.indptr[start], s.indptr[stop]) for s in (features, left_out))
        for t in range(C.shape[1]):
            dense = np.zeros((stop - start, len(G)))
            dense[_owner(out), out.indices] = y[there, t]
            solved = full[:, t] - dense @ P
            values[here, t] = solved[_owner(kept), kept.indices]

    mapper.quiet()(work, len(features), chunk=64)  # not fewer: every product reads the whole of P
    return values


def _owner(subsets: Subsets) -> Indices:
    """Number of the subset that each of the indices belongs to."""
    return np.repeat(np.arange(len(subsets)), subsets.sizes)
