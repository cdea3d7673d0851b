"""What members are solved from, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.arrays import HOST, Space
from .._execution.threads import Threads, blas_threads, cached_property
from .._kernel.wrappers import MemberData
from .._moments.moments import Moments, from_data, weighted_mean
from .._trust import EPS, ORDINARY, Cutoff, constant_columns, refuse_extremes, refuse_weights, rounding_of_factors

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LANES = 8  # rows of a panel of the kernel


@dataclass(frozen=True)
class Submatrix:
    """Rows and columns of one member: centred if an intercept is fitted, rows times the root of their weight."""

    A: NDArray[np.float64]  # (rows, m)
    B: NDArray[np.float64]  # (rows, q)
    root: NDArray[np.float64]  # (rows,) root of the weights, ones without weights
    mean_x: NDArray[np.float64]  # (m,)
    mean_y: NDArray[np.float64]  # (q,)

    def intercept(self, coef: Array) -> Array:
        """Intercept that goes with coefficients of shape (m, q)."""
        return self.mean_y - self.mean_x @ coef


@dataclass(frozen=True)
class Problem:
    """Data of an ensemble: X (n, p) dense or CSC, Y (n, q), positive weights (n,) or None."""

    X: Any
    Y: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None
    fit_intercept: bool = True
    space: Space = HOST  # where X, Y and weights live
    known_cutoff: Cutoff | None = None  # of all columns, where X holds what is left of rows that were centred before

    @cached_property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.X.shape
        return shape

    @cached_property
    def moments(self) -> Moments:
        """Moments of all rows; made once, at the first member that wants them."""
        return from_data(self.X, self.Y, self.weight, centre=self.fit_intercept, space=self.space)

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """Weighted means of X and Y; zeros without intercept."""
        if self.has_moments:
            return self.moments.mean_x, self.moments.mean_y
        if self.fit_intercept:
            return weighted_mean(self.X, self.weight, self.space), weighted_mean(self.Y, self.weight, self.space)
        return self.space.zeros(self.shape[1]), self.space.zeros(self.Y.shape[1])

    @property
    def weights(self) -> Array:
        """Of the rows, ones where none were given."""
        return np.ones(self.shape[0]) if self.weight is None else self.weight

    @property
    def total_weight(self) -> float:
        """Sum of the weights; the number of rows without."""
        return float(self.shape[0]) if self.weight is None else float(self.space.xp.sum(self.weight))

    @property
    def has_moments(self) -> bool:
        """Whether they have been made already."""
        return "moments" in vars(self)

    def moments_by(self, mapper: Threads) -> Moments:
        """The same, made with the threads of `mapper` if they are not there yet."""
        if not self.has_moments:
            made = from_data(self.X, self.Y, self.weight, centre=self.fit_intercept, space=self.space, mapper=mapper)
            vars(self)["moments"] = made
        return self.moments

    def keep_moments(self, moments: Moments) -> None:
        """Set those of all rows, where they were made on the way to something else."""
        vars(self)["moments"] = moments

    def target(self, t: int) -> Problem:
        """The same for one of several targets; moments are kept."""
        found = replace(self, Y=self.Y[:, [t]])
        if self.has_moments:
            found.keep_moments(self.moments.target(t))
        return found

    def refuse_extremes(self) -> None:
        """Raise for columns, targets and weights whose squares, or products of these, may leave double precision."""
        targets = self._largest(self.Y)
        if not (self.space.on_host and _entries_are_ordinary(self.X)):
            refuse_extremes(self._largest(self.X), "X")
        refuse_extremes(targets, "y")
        if self.weight is not None:
            refuse_weights(np.asarray(self.space.get(self.weight)))

    def _largest(self, A: Any) -> Array:
        """Largest absolute entry of every column."""
        if not self.space.on_host:
            xp = self.space.xp
            return np.asarray(self.space.get(xp.max(xp.abs(self.space.cast(A)), axis=0)), dtype=np.float64)
        if sp.issparse(A):
            return np.asarray(abs(A).max(axis=0).toarray(), dtype=np.float64).reshape(-1)
        return _largest(A)

    @cached_property
    @blas_threads(1)
    def mean_squares(self) -> Array:
        """Weighted squares (about the means, with an intercept) a row of the columns, from a hundred rows."""
        some = slice(None, None, max(1, self.shape[0] // 100))
        X, weight = self.X[some], self.weights[some]
        X = X.toarray() if sp.issparse(X) else X
        X = X - (weighted_mean(X, None if self.weight is None else weight) if self.fit_intercept else 0.0)
        X *= X  # in place: a second copy took six times as long
        return np.asarray(weight @ X / len(weight))

    def take(self, rows: Indices, moments: Moments | None = None) -> Problem:
        """The same problem on some of the rows, with their moments where these are known."""
        take, places = self.space.xp.take, self.space.put(rows)
        sparse, weight = sp.issparse(self.X), None if self.weight is None else take(self.weight, places, axis=0)
        X = sp.csc_array(sp.csr_array(self.X)[rows]) if sparse else take(self.X, places, axis=0)
        found = replace(self, X=X, Y=take(self.Y, places, axis=0), weight=weight)
        if moments is not None:
            found.keep_moments(moments)
        return found

    def distinct_rows(self, rows: Indices | None = None) -> int:
        """Number of different rows of X, or among some of them; repeated ones add nothing to the rank."""
        hashes = np.sort(self._row_hashes if rows is None else self._row_hashes[rows])
        return len(hashes) and 1 + int(np.count_nonzero(hashes[1:] != hashes[:-1]))

    def first_of_distinct_rows(self) -> Indices:
        """Index of the first of all equal rows of X, for every distinct row."""
        return np.sort(np.unique(self._row_hashes, return_index=True)[1])

    @cached_property
    def _row_hashes(self) -> NDArray[Any]:
        """Hashes of their bytes; of dense rows sums of their bits times random odd numbers, modulo 2^64."""
        if not sp.issparse(self.X):
            factors = np.random.default_rng(1).integers(0, 2**64, self.shape[1], dtype=np.uint64) | np.uint64(1)
            step = max(1, (1 << 17) // self.shape[1])
            parts = (self.X[start : start + step] for start in range(0, self.shape[0], step))
            bits = (part.view(f"u{part.itemsize}").astype(np.uint64) for part in parts)
            # round numbers end in zeros, of which few sums would be different
            return np.concatenate([(part ^ part >> np.uint64(32)) @ factors for part in bits])
        X = sp.csr_array(self.X)
        X.sum_duplicates()
        return np.array([hash((X.indices[a:b].tobytes(), X.data[a:b].tobytes())) for a, b in pairwise(X.indptr)])

    def cutoff(self, part: Submatrix, columns: Indices) -> Cutoff:
        """When a direction of a member is rounding: of the factorisation, or of taking the means out."""
        if self.known_cutoff is not None:
            return self.known_cutoff.take(columns)
        weight = float(part.root @ part.root)
        return Cutoff.of(max(part.A.shape, default=1), np.linalg.norm(part.A, axis=0), part.mean_x, weight)

    def submatrix(self, columns: Indices | slice, rows: Indices | None, dtype: Any = np.float64) -> Submatrix:
        """Gather one member. Rows left out are not there; a zero weight would still cost their arithmetic.

        With ``dtype=numpy.longdouble`` means and differences are extended, so that the data lose nothing.
        """
        A = gather(self.X, columns, rows).astype(dtype, copy=False)
        B = (self.Y if rows is None else self.Y[rows]).astype(dtype, copy=False)
        weight = self.weight if rows is None or self.weight is None else self.weight[rows]
        weight = None if weight is None else weight.astype(dtype, copy=False)
        mean_x, mean_y = np.zeros(A.shape[1]), np.zeros(B.shape[1])
        total = float(len(A)) if weight is None else float(weight.sum())
        if self.fit_intercept:
            mean_x, mean_y = weighted_mean(A, weight), weighted_mean(B, weight)
        A, B = A - mean_x, B - mean_y
        root = np.ones(len(A), dtype=dtype) if weight is None else np.sqrt(weight)
        if weight is not None:
            A, B = A * root[:, None], B * root[:, None]
        if self.fit_intercept:
            A[:, constant_columns((A * A).sum(axis=0), mean_x, total)] = 0.0
        return Submatrix(A, B, root, mean_x, mean_y)


@dataclass(frozen=True)
class Columns:
    """Columns and targets about their means, times the roots of the weights, rows padded by zeros to whole panels."""

    A: NDArray[np.float64]  # (p, rows)
    Y: NDArray[np.float64]  # (rows, q)
    n: int  # rows without padding
    mean_x: NDArray[np.float64]  # (p,) that were taken out, zeros without intercept
    mean_y: NDArray[np.float64]  # (q,) likewise
    root: NDArray[np.float64]  # (rows,) of the weights, one in the padding
    share: NDArray[np.float64]  # (rows,) of every row in the means, zero without intercept
    far: NDArray[np.float64]  # (p,) what taking the means out has rounded
    relative: float  # of a relation's length: below, it is rounding

    @property
    def for_kernels(self) -> MemberData:
        """The arrays that kernels confirm dependent columns with."""
        return MemberData(self.A, self.Y, self.far, self.relative)

    @classmethod
    def from_problem(cls, problem: Problem, sharing: Threads | None = None, rows: Indices | None = None) -> Columns:
        """A copy of all rows, about the means of some of them where these are given."""
        part = problem if rows is None else problem.take(rows)
        (n, p), (mean_x, mean_y), weight = problem.shape, part.means, problem.weight
        memory.require(8.0 * n * p, "A copy of X by columns", "Use fewer rows, or drop columns that repeat others.")
        A, root = np.zeros((p, _padded(n))), np.sqrt(problem.weights)

        def work(start: int, stop: int) -> None:
            part, out = problem.X[:, start:stop], A[start:stop, :n]
            np.subtract((part.toarray() if sp.issparse(part) else part).T, mean_x[start:stop, None], out=out)
            if weight is not None:
                out *= root

        (sharing or Threads()).without_blas(work, p)
        if problem.fit_intercept:
            inside = A if rows is None else A[:, rows]
            squares = np.diagonal(part.moments.G) if part.has_moments else np.einsum("jl,jl->j", inside, inside)
            A[constant_columns(squares, mean_x, part.total_weight)] = 0.0
        far = 4 * EPS * np.abs(mean_x) * np.sqrt(part.total_weight)
        found = cls.plain(A, (problem.Y - mean_y) * root[:, None], far, rounding_of_factors(max(n, p)))
        found.root[:n] = root
        found.share[:n] = root**2 / part.total_weight * problem.fit_intercept
        return replace(found, n=n, mean_x=mean_x, mean_y=mean_y)

    @classmethod
    def plain(cls, A: Array, Y: Array, far: Array | None = None, relative: float = 0.0) -> Columns:
        """Columns (p, n) and targets (n, q) without weights and means of their own: a factor, or rows to predict."""
        (p, n), q, size = A.shape, Y.shape[1], _padded(A.shape[1])
        A = np.ascontiguousarray(A if size == n else np.pad(A, ((0, 0), (0, size - n))))
        far = np.zeros(p) if far is None else far
        padded = np.zeros((size, q))
        padded[: len(Y)] = Y
        return cls(A, padded, n, np.zeros(p), np.zeros(q), np.ones(size), np.zeros(size), far, relative)


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES


def _entries_are_ordinary(X: Any) -> bool:
    """Whether the largest entry of every column that is not zero is an ordinary number; if not, it may be so still.

    The sum of squares, one pass over many rows as they are stored, tells that no entry is too large; that no column is
    too small, the first rows tell for all but a few.
    """
    if X.dtype == np.float32:  # which holds no others
        return True
    if not (isinstance(X, np.ndarray) and X.flags.c_contiguous and len(X) >= 1024):
        return False
    few = np.flatnonzero(_largest(X[:64]) < ORDINARY[0])
    if 16 * len(few) >= X.shape[1]:
        return False
    largest = _largest(X[:, few])
    if np.any((largest > 0) & (largest < ORDINARY[0])):
        return False
    with blas_threads(1):  # others would go on spinning and take the cores from members
        return bool(np.vdot(X, X) <= ORDINARY[1] ** 2)


def _largest(X: NDArray[Any]) -> Array:
    """Largest absolute entry of every column of a dense X."""
    highest, lowest = X.max(axis=0, initial=0.0), X.min(axis=0, initial=0.0)
    return np.asarray(np.maximum(highest, -lowest), dtype=np.float64)


def gather(X: Any, columns: Indices | slice, rows: Indices | None) -> Array:
    """Columns of some rows (None: all) of dense or sparse X, dense and in float64."""
    if sp.issparse(X):
        picked = X[:, columns]
        return np.asarray((picked if rows is None else picked[rows]).toarray(), dtype=np.float64)
    dense: NDArray[Any] = X[:, columns] if rows is None else X[rows[:, None], columns]
    return dense.astype(np.float64, copy=False)


@dataclass(frozen=True)
class Solution:
    """Members' coefficients, laid out like the column subsets.

    Parameters
    ----------
    values : ndarray of shape (indptr[-1], q)
        Coefficients of all members, one after the other, aligned with the indices of their subsets.
    intercepts : ndarray of shape (k, q)
        Zeros without intercept.
    refitted : ndarray of shape (k,)
        Members whose Gram matrix was not to be trusted and that were solved again from the data.
    solver : str
        Name of the solver.
    """

    values: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    refitted: NDArray[np.bool_]
    solver: str

    @classmethod
    def empty(cls, sizes: NDArray[np.int64], q: int, solver: str) -> Solution:
        """Room for members of these sizes, to be filled."""
        k = len(sizes)
        return cls(np.zeros((int(np.sum(sizes)), q)), np.zeros((k, q)), np.zeros(k, dtype=bool), solver)

    @classmethod
    def member_by_member(
        cls, solve_one: Callable[[int], tuple[Array, Array, bool]], sizes: Indices, q: int, name: str, mapper: Threads
    ) -> Solution:
        """Collect ``solve_one(i) -> (coef (m, q), intercept (q,), refitted)`` over all members."""
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        out = cls.empty(sizes, q, name)

        def work(start: int, stop: int) -> None:
            for i in range(start, stop):
                here = slice(indptr[i], indptr[i + 1])
                out.values[here], out.intercepts[i], out.refitted[i] = solve_one(i)

        mapper(work, len(sizes))
        return out

    def put(self, members: Indices, sizes: Indices, part: Solution, *, refitted: bool) -> None:
        """Write the solution of some members into its places; `sizes` are those of all members."""
        where = np.zeros(len(sizes), dtype=bool)
        where[members] = True
        self.values[np.repeat(where, sizes)] = part.values
        self.intercepts[members] = part.intercepts
        self.refitted[members] = part.refitted | refitted
