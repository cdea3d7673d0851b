r"""Members on principal submatrices of a Gram matrix, by Cholesky.

.. math:: G_{SS}\, b = c_S , \qquad G_{SS} = L L'

The fastest solver and the least accurate one: G squares the condition number of X. So every factor
is checked in two ways. The smallest pivot :math:`L_{jj}^2 / G_{jj}`, the fraction of column j that
the columns before it leave unexplained, finds dependent columns. It misses columns that *later*
columns explain (on NIST's Wampler polynomials it is 3e-5 where the inverse has norm 6e5), so two
random right-hand sides s are solved along: with :math:`D = \mathrm{diag}(G)^{1/2}`, :math:`D G^{-1}
D s` holds rows of the inverse correlation matrix, whose diagonal are the variance inflation
factors, times s. Members that fail may have lost more than five digits. Such members are refined on
the data (``_kernel/refine.h``), columns that depend on others are confirmed there and dropped, and
the minimum-norm solution is returned (``_kernel/dependent.h``). Members that remain doubtful are
refitted from the data, never from this matrix, and counted.

**Complement form.** For subsets of more than half of the columns and a well-conditioned G, with
:math:`P = G^{-1}`, full solution :math:`b^0 = P c` and C the columns outside the subset,

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

from .._data.columns import Columns
from .._data.moments import Moments, mirror_lower
from .._data.rows import RowData, gather
from .._execution import memory
from .._execution.threads import Threads, one_blas_thread
from .._kernel import wrappers as kernels
from .._trust import LARGEST_INFLATION, SMALLEST_PIVOT
from ..subsets import Subsets
from . import orthogonal
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def solve_shared(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Solve all members from the Gram matrix of all rows."""
    columns = partial(_columns, problem, threads)
    solution = from_moments(problem.moments_by(threads), features, threads, columns)
    return _refit_doubtful(problem, features, None, solution, threads=threads)


def from_moments(
    moments: Moments,
    features: Subsets,
    threads: Threads,
    columns: Callable[[], Columns] | None = None,
) -> Solution:
    """Solve all members from moments alone; members marked `refitted` have yet to be refitted from
    the data.

    Members with dependent columns are marked too, unless `columns` returns the data to confirm
    dependence.
    """
    q = moments.C.shape[1]
    scale = np.sqrt(np.diagonal(moments.G))
    constant = scale == 0
    G = (
        moments.G + np.diag(constant.astype(float)) if constant.any() else moments.G
    )  # constant columns: coefficient 0
    values = None
    if _complement_pays(G, features):
        values = _complement(G, moments.C, scale, features, threads=threads)
    doubtful = np.zeros(len(features.indptr) - 1, dtype=bool)
    if values is None:
        C = np.column_stack([moments.C, scale[:, None] * _probes(len(scale))])
        values, ratios, probed = _solve_principal(
            G, C, scale, q=q, features=features, threads=threads, columns=columns
        )
        doubtful = ~((ratios > SMALLEST_PIVOT) & (probed < LARGEST_INFLATION))
    intercepts = moments.mean_y - _times(values, features, moments.mean_x)
    return Solution(values, intercepts, doubtful, "gram")


def solve_own(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Solve each member from the Gram matrix of its rows and columns, or from the data where that
    is not trusted.
    """
    solution = from_submatrices(problem, features, samples, threads)
    return _refit_doubtful(problem, features, samples, solution, threads=threads)


def from_submatrices(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Solve each member from the Gram matrix of its rows and columns; `refitted` marks doubtful
    members.

    The probes are further targets, of pure noise (divided by the roots of the weights, since rows
    are sqrt-weighted): a column's squared coefficient times its sum of squares is on average its
    variance inflation factor. Sums of squares are those of all rows, in proportion.
    """
    n = len(problem.Y)
    noise = _probes(n)
    if problem.weight is not None:  # no member has rows of weight zero
        noise = noise / np.sqrt(np.where(problem.weight > 0, problem.weight, 1.0))[:, None]
    values, intercepts, ratios, probed = _solve_submatrices(
        problem,
        features,
        samples,
        Y=np.ascontiguousarray(np.column_stack([problem.Y, noise])),
        scale=np.sqrt(problem.mean_squares),
        threads=threads,
    )
    rows = n if samples is None else samples.sizes
    doubtful = ~((ratios > SMALLEST_PIVOT) & (probed**2 * rows < LARGEST_INFLATION))
    return Solution(values, intercepts, doubtful, "member_gram")


@lru_cache(maxsize=1)
def _probes(size: int) -> Array:
    """Fixed random numbers: trust in a member does not depend on the seed of the ensemble."""
    return np.random.default_rng(20200608).standard_normal((size, 2))


def _refit_doubtful(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    solution: Solution,
    *,
    threads: Threads,
) -> Solution:
    """Refit doubtful members from the data."""
    doubtful = np.flatnonzero(solution.refitted)
    if len(doubtful):
        rows = None if samples is None else samples.take(doubtful)
        entries = (problem.shape[0] if rows is None else rows.sizes) * features.sizes[doubtful]
        refine = (
            float(np.sum(entries)) <= orthogonal.LARGEST_REFINED
        )  # nobody waits for so few entries
        refits = orthogonal.solve(problem, features.take(doubtful), rows, threads, refine=refine)
        solution.put(doubtful, features.sizes, refits, refitted=True)
    return solution


def _times(values: Array, features: Subsets, vector: Array) -> Array:
    """Product of every member's coefficients with a vector over all columns: (k, q)."""
    shape = (len(features.indptr) - 1, features.n_items)
    matrices = [sp.csr_array((v, features.indices, features.indptr), shape=shape) for v in values.T]
    return np.stack([matrix @ vector for matrix in matrices], 1)


def _columns(problem: RowData, threads: Threads) -> Columns:
    """Data by which the kernel confirms dependent columns.

    For data in blocks it is a triangular factor, which may need another pass over the data.
    """
    if isinstance(problem.X, np.ndarray) or sp.issparse(problem.X):
        return Columns.from_problem(problem, threads)
    all_columns = np.arange(problem.shape[1])
    part = problem.submatrix(all_columns, None)
    cutoff = problem.cutoff(part, all_columns)
    A = np.ascontiguousarray(part.A.T)
    noise = np.zeros(len(A)) if cutoff.noise is None else cutoff.noise
    return Columns.plain(A, part.B, noise * np.linalg.norm(A, axis=1), cutoff.relative)


def _solve_principal(
    G: Array,
    C: Array,
    scale: Array,
    *,
    q: int,
    features: Subsets,
    threads: Threads,
    columns: Callable[[], Columns] | None = None,
) -> tuple[Array, Array, Array]:
    """Solutions of the first q right-hand sides, pivot ratios, and the largest scaled entry of the
    other solutions.

    Data for dependent columns are made when the first members have dependent columns, or when later
    members do.
    """
    G = np.ascontiguousarray(G)
    C = np.ascontiguousarray(C)
    no_data = Columns.plain(np.zeros((len(G), 0)), np.zeros((0, 1)))

    def solve(features: Subsets, threads: Threads, data: Columns) -> tuple[Array, Array, Array]:
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

        threads(work, k, uses_blas=False)
        return values, ratios, probed

    data = no_data
    if columns is not None:
        # mostly, all members have dependent columns or none
        first_members = features.slice(0, min(4, len(features.indptr) - 1))
        _, first_ratios, _ = solve(first_members, threads.quiet(), no_data)
        if np.any(first_ratios < 0):
            data = columns()
            columns = None
    values, ratios, probed = solve(features, threads, data)
    dependent = np.flatnonzero(ratios < 0)
    if columns is not None and len(dependent):
        entries = np.repeat(ratios < 0, features.sizes)
        solution = solve(features.take(dependent), threads.quiet(), columns())
        values[entries], ratios[dependent], probed[dependent] = solution
    return values, ratios, probed


def _solve_submatrices(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    *,
    Y: Array,
    scale: Array,
    threads: Threads,
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

        threads(solve_copies, k)
        return values, intercepts, ratios, probed
    all_rows = kernels.Lists(np.zeros(k, np.int64), np.full(k, n), np.arange(n))
    row_lists = all_rows if samples is None else kernels.Lists.of(samples.indptr, samples.indices)
    X = _gatherable(problem.X, features, threads)
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

    threads(solve, k, uses_blas=False)
    return values, intercepts, ratios, probed


def _one_list(size: int) -> kernels.Lists:
    """All indices below `size` as one list."""
    return kernels.Lists(np.zeros(1, np.int64), np.array([size]), np.arange(size))


def _gatherable(X: Array, features: Subsets, threads: Threads) -> Array:
    """X in an order to gather columns from: column order for wide data, where row order reads a
    cache line an entry.
    """
    in_order = X.flags.f_contiguous or (
        X.flags.c_contiguous and X.shape[1] < 16 * features.sizes.mean()
    )
    if in_order and X.flags.aligned:
        return X
    memory.require(
        X.nbytes, "A copy of X in column order", "Pass X in Fortran order (numpy.asfortranarray)."
    )
    copy = np.empty(X.shape, order="F")

    def work(start: int, stop: int) -> None:
        copy[:, start:stop] = X[:, start:stop]

    threads.without_blas(work, X.shape[1])
    return copy


def _complement_pays(G: Array, features: Subsets) -> bool:
    """Whether solving for the columns outside is less work: p^3 + k ((p-m)^3/3 + 2 p^2) against k
    m^3/3.
    """
    p = len(G)
    m = np.diff(features.indptr)
    complement_flops = p**3 + np.sum((p - m) ** 3.0 / 3) + 2.0 * len(m) * p**2
    return bool(complement_flops < np.sum(m**3.0 / 3))


def _complement(
    G: Array, C: Array, scale: Array, features: Subsets, *, threads: Threads
) -> Array | None:
    """Coefficients by the complement form, or None where G is not well-conditioned enough for its
    inverse.

    The diagonal of the inverse holds the variance inflation factors of all columns together, which
    bound the factors of every subset: no member needs a separate probe. The inverse squares the
    condition once more, hence the lower limit. One thread of BLAS, so that results do not depend on
    the number of threads.
    """
    with one_blas_thread():
        L, info = la.lapack.dpotrf(
            G.T, lower=True, clean=False
        )  # G is symmetric; its transpose needs no reordering
        if info:
            return None
        P, info = la.lapack.dpotri(L, lower=True, overwrite_c=True)
        P = mirror_lower(P).T
        unit = np.where(scale > 0, scale, 1.0)
        if info or not np.max(np.diagonal(P) * unit**2) < 1e3:
            return None
        full = P @ C  # (p, q)
        q = C.shape[1]
        complements = features.complement()
        y, _, _ = _solve_principal(P, full, scale, q=q, features=complements, threads=threads)
        values = np.empty((len(features.indices), q))

        def work(start: int, stop: int) -> None:
            inner = features.slice(start, stop)
            outer = complements.slice(start, stop)
            inner_entries = slice(features.indptr[start], features.indptr[stop])
            outer_entries = slice(complements.indptr[start], complements.indptr[stop])
            for t in range(q):
                dense = np.zeros((stop - start, len(G)))
                dense[_owner(outer), outer.indices] = y[outer_entries, t]
                solved = full[:, t] - dense @ P
                values[inner_entries, t] = solved[_owner(inner), inner.indices]

        threads.quiet()(
            work, len(features.indptr) - 1, chunk=64
        )  # not fewer: every product reads all of P
        return values


def _owner(subsets: Subsets) -> Indices:
    """Number of the subset that each index belongs to."""
    sizes = np.diff(subsets.indptr)
    return np.repeat(np.arange(len(sizes)), sizes)
