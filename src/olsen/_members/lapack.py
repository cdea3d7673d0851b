"""Members one by one through LAPACK, from Python: for few members, sparse data, and machines without numba."""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from .problem import Problem

__all__ = ["cholesky_solve", "solve_principal", "solve_submatrices"]


def solve_principal(G, C, features, mapper):
    """Solutions of ``G[S, S] b = C[S]``, aligned with the subsets, and every member's smallest pivot ratio."""
    values = np.empty((len(features.indices), C.shape[1]))
    ratios = np.empty(len(features))

    def work(start, stop):
        for i in range(start, stop):
            S = features[i]
            here = slice(features.indptr[i], features.indptr[i + 1])
            values[here], ratios[i] = cholesky_solve(G[np.ix_(S, S)], C[S])

    mapper(work, len(features))
    return values, ratios


def solve_submatrices(problem: Problem, Y, features, samples, mapper):
    """Coefficients, intercepts and pivot ratios of members on their own rows and columns, for targets Y (n, q)."""
    values = np.empty((len(features.indices), Y.shape[1]))
    intercepts, ratios = np.empty((len(features), Y.shape[1])), np.empty(len(features))
    data = problem.with_targets(Y)

    def work(start, stop):
        for i in range(start, stop):
            part = data.submatrix(features[i], None if samples is None else samples[i])
            G = part.A.T @ part.A
            G[np.diag_indices_from(G)] += np.diagonal(G) == 0  # constant columns: coefficient zero
            coef, ratios[i] = cholesky_solve(G, part.A.T @ part.B)
            values[features.indptr[i] : features.indptr[i + 1]] = coef
            intercepts[i] = part.intercept(coef)

    mapper(work, len(features))
    return values, intercepts, ratios


def cholesky_solve(G, C):
    """Solution of G b = C and the smallest L_jj^2 / G_jj; NaN and 0 when G is not positive definite."""
    if not len(G):
        return np.zeros_like(C), 1.0
    L, info = la.lapack.dpotrf(G, lower=True, clean=False)
    if info:
        return np.full(C.shape, np.nan), 0.0
    return la.lapack.dpotrs(L, C, lower=True)[0], np.min(np.diagonal(L) ** 2 / np.diagonal(G))
