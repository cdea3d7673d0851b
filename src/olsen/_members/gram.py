r"""Members on principal submatrices of a Gram matrix, by Cholesky.

.. math:: G_{SS}\, b = c_S , \qquad G_{SS} = L L'

The fastest way and the least accurate one: G squares the condition number of X. So every factor is watched in two ways.
The smallest pivot :math:`L_{jj}^2 / G_{jj}`, the share of column j that the columns before it leave unexplained, finds
columns that are dependent. It does not see those that *later* columns explain (on NIST's Wampler polynomials it is 3e-5
where the inverse has norm 6e5), so two random right-hand sides s are solved along: with :math:`D =
\mathrm{diag}(G)^{1/2}`, :math:`D G^{-1} D s` holds rows of the inverse correlation matrix, whose diagonal are the
variance inflation factors, times s. Members that fail may have lost more than five digits. They are refined on the data
(``_kernel/refine.h``), and columns that depend on others are confirmed there and dropped, and the minimum-norm
solution is returned (``_kernel/dependent.h``); what remains doubtful is solved again from the data, never from this
matrix, and counted.

**Complement form.** For subsets of more than half of the columns and a well-conditioned G, with :math:`P = G^{-1}`,
full solution :math:`b^0 = P c` and left-out columns C,

.. math:: b = b^0 - P_{:C} \, P_{CC}^{-1} \, b^0_C

which solves systems of size p - m instead of m. Status: exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.threads import Threads, one_blas_thread
from .._kernel import wrappers as kernels
from .._moments.moments import Moments, mirror_lower
from .._trust import LARGEST_INFLATION, SMALLEST_PIVOT
from ..subsets import Subsets
from . import orthogonal
from .problem import Columns, Problem, Solution, gather

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def solve_shared(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Threads) -> Solution:
    """All members from the Gram matrix of all rows."""
    columns = partial(_columns, problem, mapper)
    found = from_moments(problem.moments_by(mapper), features, mapper, columns)
    return _mend(problem, features, None, found, mapper)


def from_moments(
    moments: Moments, features: Subsets, mapper: Threads, columns: Callable[[], Columns] | None = None
) -> Solution:
    """The same without a look at the data; members marked `refitted` are still to be solved again from there.

    Members with dependent columns are among them, unless `columns` gives the data to confirm these.
    """
    q = moments.C.shape[1]
    scale = np.sqrt(np.diagonal(moments.G))
    dead = scale == 0
    G = moments.G + np.diag(dead.astype(float)) if dead.any() else moments.G  # constant columns: coefficient zero

    values = _complement(G, moments.C, scale, features, mapper) if _complement_pays(G, features) else None
    doubtful = np.zeros(len(features.indptr) - 1, dtype=bool)
    if values is None:
        C = np.column_stack([moments.C, scale[:, None] * _probes(len(scale))])
        values, ratios, probed = _solve_principal(G, C, scale, q, features, mapper, columns)
        doubtful = ~((ratios > SMALLEST_PIVOT) & (probed < LARGEST_INFLATION))
    return Solution(values, moments.mean_y - _times(values, features, moments.mean_x), doubtful, "gram")


def solve_own(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Threads) -> Solution:
    """Each member from the Gram matrix of its own rows and columns, or from the data where that is not trusted."""
    return _mend(problem, features, samples, from_submatrices(problem, features, samples, mapper), mapper)


def from_submatrices(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Threads) -> Solution:
    """Each member from the Gram matrix of its own rows and columns; `refitted` marks those it is not trusted for.

    The probes are further targets, of pure noise (over the roots of the weights, which the rows are multiplied by): a
    column's squared coefficient times its sum of squares is on average its variance inflation factor. Sums of squares
    are those of all rows, in proportion.
    """
    n = len(problem.Y)
    noise = _probes(n)
    if problem.weight is not None:  # rows of weight zero are nobody's
        noise = noise / np.sqrt(np.where(problem.weight > 0, problem.weight, 1.0))[:, None]
    Y = np.ascontiguousarray(np.column_stack([problem.Y, noise]))
    scale = np.sqrt(problem.mean_squares)
    values, intercepts, ratios, probed = _solve_submatrices(problem, Y, scale, features, samples, mapper)
    rows = n if samples is None else samples.sizes
    doubtful = ~((ratios > SMALLEST_PIVOT) & (probed**2 * rows < LARGEST_INFLATION))
    return Solution(values, intercepts, doubtful, "member_gram")


@lru_cache(maxsize=1)
def _probes(size: int) -> Array:
    """Fixed random numbers: the same members are trusted whatever the seed of the ensemble."""
    return np.random.default_rng(20200608).standard_normal((size, 2))


def _mend(
    problem: Problem, features: Subsets, samples: Subsets | None, solution: Solution, mapper: Threads
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
    shape = (len(features.indptr) - 1, features.n_items)
    return np.stack([sp.csr_array((v, features.indices, features.indptr), shape=shape) @ vector for v in values.T], 1)


def _columns(problem: Problem, sharing: Threads) -> Columns:
    """What the kernel confirms dependent columns with.

    Of data in blocks it is a triangular factor; making that may read them again.
    """
    if isinstance(problem.X, np.ndarray) or sp.issparse(problem.X):
        return Columns.from_problem(problem, sharing)
    whole = np.arange(problem.shape[1])
    part = problem.submatrix(whole, None)
    cutoff, A = problem.cutoff(part, whole), np.ascontiguousarray(part.A.T)
    noise = np.zeros(len(A)) if cutoff.noise is None else cutoff.noise
    return Columns.plain(A, part.B, noise * np.linalg.norm(A, axis=1), cutoff.relative)


def _solve_principal(
    G: Array,
    C: Array,
    scale: Array,
    q: int,
    features: Subsets,
    mapper: Threads,
    columns: Callable[[], Columns] | None = None,
) -> tuple[Array, Array, Array]:
    """Solutions of the first q right-hand sides, pivot ratios, and the largest scaled entry of the other solutions.

    Data for dependent columns are made when the first members have any, or when others turn out to.
    """
    G, C = np.ascontiguousarray(G), np.ascontiguousarray(C)
    data = Columns.plain(np.zeros((len(G), 0)), np.zeros((0, 1)))

    def solve(features: Subsets, mapper: Threads, data: Columns) -> tuple[Array, Array, Array]:
        k = len(features.indptr) - 1
        values = np.empty((len(features.indices), q))
        ratios = np.empty(k)
        probed = np.empty(k)
        member_columns = kernels.Lists.of(features.indptr, features.indices)

        def work(start: int, stop: int) -> None:
            kernels.solve_principal(
                begin=start,
                end=stop,
                G=G,
                C=C,
                scale=scale,
                data=data.for_kernels,
                columns=member_columns,
                values=values,
                ratios=ratios,
                probed=probed,
            )

        mapper(work, k, uses_blas=False)
        return values, ratios, probed

    few = features.slice(0, min(4, len(features.indptr) - 1))  # mostly all are alike in having dependent columns
    if columns is not None and np.any(solve(few, mapper.quiet(), data)[1] < 0):
        data, columns = columns(), None
    values, ratios, probed = solve(features, mapper, data)
    left = np.flatnonzero(ratios < 0)
    if columns is not None and len(left):
        where = np.repeat(ratios < 0, features.sizes)
        values[where], ratios[left], probed[left] = solve(features.take(left), mapper.quiet(), columns())
    return values, ratios, probed


def _solve_submatrices(
    problem: Problem, Y: Array, scale: Array, features: Subsets, samples: Subsets | None, mapper: Threads
) -> tuple[Array, Array, Array, Array]:
    """Coefficients, intercepts, pivot ratios and the largest scaled coefficients of the probes."""
    n = problem.shape[0]
    k = len(features)
    q = problem.Y.shape[1]
    values = np.empty((len(features.indices), q))
    intercepts = np.empty((k, q))
    ratios = np.empty(k)
    probed = np.empty(k)
    if sp.issparse(problem.X) or problem.X.dtype != np.float64:

        def solve_copies(start: int, stop: int) -> None:
            """Solve members one by one: the kernel reads a copy of each member's columns."""
            for i in range(start, stop):
                columns = features[i]
                rows = np.arange(n) if samples is None else samples[i]
                X = gather(problem.X, columns, rows)
                kernels.solve_gathered(
                    begin=0,
                    end=1,
                    X=X,
                    Y=Y[rows],
                    columns=_one_list(len(columns)),
                    rows=_one_list(len(X)),
                    weights=np.empty(0) if problem.weight is None else problem.weight[rows],
                    scale=scale[columns],
                    centre=problem.fit_intercept,
                    values=values[features.indptr[i] : features.indptr[i + 1]],
                    intercepts=intercepts[i : i + 1],
                    ratios=ratios[i : i + 1],
                    probed=probed[i : i + 1],
                )

        mapper(solve_copies, k)
        return values, intercepts, ratios, probed
    all_rows = kernels.Lists(np.zeros(k, np.int64), np.full(k, n), np.arange(n))
    row_lists = all_rows if samples is None else kernels.Lists.of(samples.indptr, samples.indices)
    X = _gatherable(problem.X, features, mapper)
    weights = np.empty(0) if problem.weight is None else problem.weight[row_lists.indices]

    def solve(start: int, stop: int) -> None:
        kernels.solve_gathered(
            begin=start,
            end=stop,
            X=X,
            Y=Y,
            columns=kernels.Lists.of(features.indptr, features.indices),
            rows=row_lists,
            weights=weights,
            scale=scale,
            centre=problem.fit_intercept,
            values=values,
            intercepts=intercepts,
            ratios=ratios,
            probed=probed,
        )

    mapper(solve, k, uses_blas=False)
    return values, intercepts, ratios, probed


def _one_list(size: int) -> kernels.Lists:
    """All of `size` indices as one list."""
    return kernels.Lists(np.zeros(1, np.int64), np.array([size]), np.arange(size))


def _gatherable(X: Array, features: Subsets, mapper: Threads) -> Array:
    """Column order for wide data, where in row order every entry would be a cache line of its own."""
    in_order = X.flags.f_contiguous or (X.flags.c_contiguous and X.shape[1] < 16 * features.sizes.mean())
    if in_order and X.flags.aligned:
        return X
    memory.require(X.nbytes, "A copy of X in column order", "Pass X in Fortran order (numpy.asfortranarray).")
    copy = np.empty(X.shape, order="F")

    def work(start: int, stop: int) -> None:
        copy[:, start:stop] = X[:, start:stop]

    mapper.without_blas(work, X.shape[1])
    return copy


def _complement_pays(G: Array, features: Subsets) -> bool:
    """Whether solving for the left-out columns is less work: p^3 + k ((p-m)^3/3 + 2 p^2) against k m^3/3."""
    p, m = len(G), np.diff(features.indptr)
    return bool(p**3 + np.sum((p - m) ** 3.0 / 3) + 2.0 * len(m) * p**2 < np.sum(m**3.0 / 3))


def _complement(G: Array, C: Array, scale: Array, features: Subsets, mapper: Threads) -> Array | None:
    """The complement form, or None where G is not well-conditioned enough for its inverse.

    The diagonal of the inverse holds the variance inflation factors of all columns together, which bound those of every
    subset: no member needs a probe of its own. The inverse squares the condition once more, hence the lower limit. One
    thread of BLAS, so that results do not depend on those of members.
    """
    with one_blas_thread():
        L, info = la.lapack.dpotrf(G.T, lower=True, clean=False)  # G is symmetric; its transpose needs no reordering
        if info:
            return None
        P, info = la.lapack.dpotri(L, lower=True, overwrite_c=True)
        P = mirror_lower(P).T
        if info or not np.max(np.diagonal(P) * np.where(scale > 0, scale, 1.0) ** 2) < 1e3:
            return None
        full, left_out = P @ C, features.complement()  # (p, q)
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

        mapper.quiet()(work, len(features.indptr) - 1, chunk=64)  # not fewer: every product reads the whole of P
        return values


def _owner(subsets: Subsets) -> Indices:
    """Number of the subset that each of the indices belongs to."""
    sizes = np.diff(subsets.indptr)
    return np.repeat(np.arange(len(sizes)), sizes)
