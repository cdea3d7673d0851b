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
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.columns import Columns
from .._data.moments import Moments
from .._data.rows import RowData
from .._execution import memory
from .._execution.threads import Threads, one_blas_thread
from .._kernel import wrappers as kernels
from .._trust import LARGEST_INFLATION, SMALLEST_PIVOT
from ..subsets import Subsets
from . import orthogonal
from .cholesky import inverse, ones_for_constants
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
    scale = np.sqrt(np.diagonal(moments.G))
    G = moments.G if np.all(scale > 0) else ones_for_constants(moments.G)
    doubtful = np.zeros(len(features.sizes), dtype=bool)
    values = None
    if _complement_pays(G, features):
        values = _complement(G, moments.C, scale, features, threads=threads)
    if values is None:
        values, doubtful = _with_probes(
            G, moments.C, scale, features=features, threads=threads, columns=columns
        )
    intercepts = moments.mean_y - products(values, features, moments.mean_x)
    return Solution(values, intercepts, doubtful, "gram")


def _with_probes(
    G: Array,
    C: Array,
    scale: Array,
    *,
    features: Subsets,
    threads: Threads,
    columns: Callable[[], Columns] | None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Coefficients by Cholesky, and the members that remain doubtful.

    Data are made only if members have dependent columns.
    """
    q = C.shape[1]
    right = np.column_stack([C, scale[:, None] * _probes(len(scale))])
    solve = partial(_solve_principal, G, right, scale, q=q)
    factored = solve(features=features, threads=threads)
    dependent = np.flatnonzero(factored.ratios < 0)
    if columns is not None and len(dependent):
        part = solve(
            features=features.take(dependent), threads=threads.quiet(), data=columns().for_kernels
        )
        factored.values[np.repeat(factored.ratios < 0, features.sizes)] = part.values
        factored.ratios[dependent] = part.ratios
        factored.probed[dependent] = part.probed
    trusted = (factored.ratios > SMALLEST_PIVOT) & (factored.probed < LARGEST_INFLATION)
    return factored.values, ~trusted


def solve_own(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Solve each member from the Gram matrix of its rows and columns, or from the data where that
    is not trusted.
    """
    solution = from_submatrices(problem, features, samples, threads)
    return _refit_doubtful(problem, features, samples, solution, threads=threads)


def from_submatrices(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    threads: Threads,
    *,
    penalty: float = 0.0,
) -> Solution:
    """Solve each member from the Gram matrix of its rows and columns; `refitted` marks doubtful
    members.

    The probes are further targets, of pure noise (divided by the roots of the weights, since rows
    are sqrt-weighted): a column's squared coefficient times its sum of squares is on average its
    variance inflation factor. Sums of squares are those of all rows, in proportion. A `penalty` is
    a fraction of the squared norm of every column, on the diagonal of each Gram matrix; dense rows
    in double precision only.
    """
    scale = np.sqrt(problem.mean_squares)
    if sp.issparse(problem.X) or problem.X.dtype != np.float64:
        return _from_copies(problem, features, samples, threads, scale)
    return _from_gathered(problem, features, samples, threads, scale, penalty=penalty)


def _from_gathered(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    threads: Threads,
    scale: Array,
    *,
    penalty: float = 0.0,
) -> Solution:
    """Solve members from dense X in double precision, which the kernel gathers from."""
    n = len(problem.Y)
    k = len(features.sizes)
    q = problem.Y.shape[1]
    noise = _probes(n)
    weights = np.empty(0)
    rows = kernels.Lists(np.zeros(k, np.int64), np.full(k, n), np.arange(n))
    if samples is not None:
        rows = kernels.Lists.of(samples.indptr, samples.indices)
    if problem.weight is not None:  # no member has rows of weight zero
        noise = noise / np.sqrt(np.where(problem.weight > 0, problem.weight, 1.0))[:, None]
        weights = problem.weight[rows.indices]
    solution = Solution.empty(features.sizes, q, "member_gram")
    ratios = np.empty(k)
    probed = np.empty(k)
    solve = partial(
        kernels.solve_gathered,
        X=_gatherable(problem.X, features, threads),
        Y=np.ascontiguousarray(np.column_stack([problem.Y, noise])),
        columns=kernels.Lists.of(features.indptr, features.indices),
        rows=rows,
        weights=weights,
        scale=scale,
        centre=bool(problem.null_rank),
        penalty=penalty,
        values=solution.values,
        intercepts=solution.intercepts,
        ratios=ratios,
        probed=probed,
    )
    threads(solve, k, uses_blas=False)
    inflation = probed**2 * (rows.stops - rows.starts)
    solution.refitted[:] = ~((ratios > SMALLEST_PIVOT) & (inflation < LARGEST_INFLATION))
    return solution


def _from_copies(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads, scale: Array
) -> Solution:
    """Solve members one by one from dense copies of their rows and columns, which the kernel can
    read.
    """

    def solve_one(i: int) -> tuple[Array, Array, bool]:
        copy = problem.gathered(features[i], None if samples is None else samples[i])
        m = copy.shape[1]
        all_columns = Subsets(m, np.array([0, m]), np.arange(m))
        part = _from_gathered(copy, all_columns, None, Threads(), scale[features[i]])
        return part.values, part.intercepts[0], bool(part.refitted[0])

    return Solution.member_by_member(
        solve_one, features.sizes, q=problem.Y.shape[1], name="member_gram", threads=threads
    )


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


def products(values: Array, features: Subsets, vector: Array) -> Array:
    """Product of every member's coefficients with a vector over all columns: (k, q)."""
    if not vector.any():
        return np.zeros((len(features.sizes), values.shape[1]))
    shape = (len(features.sizes), features.n_items)
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


@dataclass(frozen=True)
class _Factored:
    """Solutions on principal submatrices, with what the kernel says about every factor."""

    values: Array  # (entries, q) solutions of the first q right-hand sides
    ratios: Array  # (k,) smallest pivots, negative where columns are dependent
    probed: Array  # (k,) largest scaled entries of the other solutions


def _solve_principal(
    G: Array,
    C: Array,
    scale: Array,
    *,
    q: int,
    features: Subsets,
    threads: Threads,
    data: kernels.MemberData | None = None,
) -> _Factored:
    """Solve for all members; `data` confirm dependent columns, None: the members are reported."""
    k = len(features.sizes)
    factored = _Factored(np.empty((len(features.indices), q)), np.empty(k), np.empty(k))
    solve = partial(
        kernels.solve_principal,
        G=np.ascontiguousarray(G),
        C=np.ascontiguousarray(C),
        scale=scale,
        data=data or kernels.MemberData.none(len(G)),
        columns=kernels.Lists.of(features.indptr, features.indices),
        shifts=np.zeros(k),
        **vars(factored),
    )
    threads(solve, k, uses_blas=False)
    return factored


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
    m = features.sizes
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
        P, inflation = inverse(G)
        full = P @ C  # (p, q)
    if not inflation < 1e3:
        return None
    q = C.shape[1]
    complements = features.complement()
    y = _solve_principal(P, full, scale, q=q, features=complements, threads=threads).values
    values = np.empty((len(features.indices), q))

    def work(start: int, stop: int) -> None:
        in_member = features.slice(start, stop).mask()
        entries = slice(features.indptr[start], features.indptr[stop])
        complement_entries = slice(complements.indptr[start], complements.indptr[stop])
        for t in range(q):
            dense = np.zeros(in_member.shape)
            dense[~in_member] = y[complement_entries, t]
            values[entries, t] = (full[:, t] - dense @ P)[in_member]

    threads.quiet()(work, len(features.sizes), chunk=64)  # not fewer: every product reads all of P
    return values
