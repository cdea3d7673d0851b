"""Members through LAPACK, from Python: for few members, sparse data, and machines without numba."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Sharing
from ..subsets import Subsets
from .problem import Problem

__all__ = ["cholesky_solve", "largest_probe", "solve_principal", "solve_submatrices"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

SMALL = 48  # columns up to which the calls cost more than the arithmetic
STACK = 1 << 20  # entries of a stack of matrices


def solve_principal(
    G: Array, C: Array, scale: Array, q: int, features: Subsets, mapper: Sharing
) -> tuple[Array, Array, Array]:
    """Solutions of ``G[S, S] b = C[S]`` for the first q right-hand sides, every member's smallest pivot ratio, and the
    largest ``|x_j| scale_j`` of the solutions for the other ones, the probes."""
    values = np.empty((len(features.indices), q))
    ratios, probed = np.empty(len(features)), np.empty(len(features))

    def put(i: int, S: Indices, solved: Array, ratio: float) -> None:
        values[features.indptr[i] : features.indptr[i + 1]] = solved[:, :q]
        ratios[i], probed[i] = ratio, largest_probe(solved[:, q:], scale[S])

    def work(start: int, stop: int) -> None:
        for first, last in _runs_of_equal_size(features, start, stop):
            S = features.indices[features.indptr[first] : features.indptr[last]].reshape(last - first, -1)
            for i, solution in enumerate(_solve_equal(G, C, S), first):
                put(i, S[i - first], *solution)

    # of small members a stack is worth more than a thread, unless somebody watches the progress
    together = features.sizes.max(initial=0) <= SMALL and mapper.report is None
    mapper(work, len(features), chunk=256 if together else None)
    return values, ratios, probed


def _runs_of_equal_size(features: Subsets, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive members that have as many columns as each other, of at most ``STACK`` entries together."""
    sizes = features.sizes[start:stop]
    cuts = [start, *(start + 1 + np.flatnonzero(np.diff(sizes))), stop]
    for first, last in pairwise(cuts):
        step = max(1, STACK // max(1, int(features.sizes[first])) ** 2)
        yield from ((a, min(a + step, last)) for a in range(first, last, step))


def _solve_equal(G: Array, C: Array, S: Indices) -> Iterable[tuple[Array, float]]:
    """Pairs (solution, pivot ratio) of members whose columns are the rows of S; small ones in one call for all."""
    count, m = S.shape
    if not 0 < m <= SMALL:
        return [cholesky_solve(G[np.ix_(s, s)], C[s]) for s in S]
    stack = G[S[:, :, None], S[:, None, :]]
    length = np.sqrt(np.diagonal(stack, axis1=1, axis2=2))  # of unit length: elimination, unlike Cholesky, minds units
    try:
        stack = stack / (length[:, :, None] * length[:, None, :])
        L, solved = np.linalg.cholesky(stack), np.linalg.solve(stack, C[S] / length[:, :, None])
    except np.linalg.LinAlgError:
        if count == 1:
            return [cholesky_solve(G[np.ix_(S[0], S[0])], C[S[0]])]
        return [solution for s in S for solution in _solve_equal(G, C, s[None])]  # one of them is singular: one by one
    ratios = (np.diagonal(L, axis1=1, axis2=2) ** 2).min(axis=1)
    return zip(solved / length[:, :, None], ratios, strict=True)


def solve_submatrices(
    problem: Problem, Y: Array, scale: Array, features: Subsets, samples: Subsets | None, mapper: Sharing
) -> tuple[Array, Array, Array, Array]:
    """Coefficients, intercepts, pivot ratios and probes of members on their own rows and columns.

    Y holds the targets (n, q) and after them the probes.
    """
    q = problem.Y.shape[1]
    values = np.empty((len(features.indices), q))
    intercepts = np.empty((len(features), q))
    ratios, probed = np.empty(len(features)), np.empty(len(features))
    data = problem.with_targets(Y)

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            part = data.submatrix(features[i], None if samples is None else samples[i])
            G = part.A.T @ part.A
            G[np.diag_indices_from(G)] += np.diagonal(G) == 0  # constant columns: coefficient zero
            coef, ratios[i] = cholesky_solve(G, part.A.T @ part.B)
            values[features.indptr[i] : features.indptr[i + 1]] = coef[:, :q]
            intercepts[i] = part.intercept(coef)[:q]
            probed[i] = largest_probe(coef[:, q:], scale[features[i]])

    mapper(work, len(features))
    return values, intercepts, ratios, probed


def largest_probe(solved: Array, scale: Array) -> float:
    """Largest entry of the probes' solutions (m, probes), scaled."""
    return float((np.abs(solved).max(axis=1, initial=0.0) * scale).max(initial=0.0))


def cholesky_solve(G: Array, C: Array) -> tuple[Array, float]:
    """Solution of G b = C and the smallest L_jj^2 / G_jj; NaN and 0 when G is not positive definite."""
    if not len(G):
        return np.zeros_like(C), 1.0
    L, info = la.lapack.dpotrf(G, lower=True, clean=False)
    if info:
        return np.full(C.shape, np.nan), 0.0
    return la.lapack.dpotrs(L, C, lower=True)[0], np.min(np.diagonal(L) ** 2 / np.diagonal(G))
