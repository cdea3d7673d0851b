"""Input and output of the solvers: the problem, its submatrices, and the members' solutions."""

from __future__ import annotations

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
from .._trust import (
    EPS,
    ORDINARY,
    Cutoff,
    constant_columns,
    refuse_extremes,
    refuse_weights,
    rounding_of_factors,
)
from .moments import Moments, from_data, weighted_mean

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LANES = 8  # rows of a panel of the kernel


@dataclass(frozen=True)
class Submatrix:
    """Rows and columns of one member: centred if an intercept is fitted, and sqrt-weighted."""

    A: NDArray[np.float64]  # (rows, m)
    B: NDArray[np.float64]  # (rows, q)
    root: NDArray[np.float64]  # (rows,) root of the weights, ones without weights
    mean_x: NDArray[np.float64]  # (m,)
    mean_y: NDArray[np.float64]  # (q,)

    def intercept(self, coef: Array) -> Array:
        """Intercept for coefficients of shape (m, q)."""
        return self.mean_y - self.mean_x @ coef


@dataclass(frozen=True)
class RowData:
    """Data of an ensemble: X (n, p) dense or CSC, Y (n, q), positive weights (n,) or None."""

    X: Any
    Y: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None
    fit_intercept: bool = True
    space: Space = HOST  # where X, Y and weights live
    known_cutoff: Cutoff | None = (
        None  # of all columns, where X is a factor of rows that were centred before
    )

    @cached_property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.X.shape
        return shape

    @cached_property
    def moments(self) -> Moments:
        """Moments of all rows, computed at the first use."""
        return from_data(self.X, self.Y, self.weight, centre=self.fit_intercept, space=self.space)

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """Weighted means of X and Y; zeros without intercept."""
        if self.has_moments:
            return self.moments.mean_x, self.moments.mean_y
        if self.fit_intercept:
            return weighted_mean(self.X, self.weight, self.space), weighted_mean(
                self.Y, self.weight, self.space
            )
        return self.space.zeros(self.shape[1]), self.space.zeros(self.Y.shape[1])

    @property
    def weights(self) -> Array:
        """Weights of the rows; ones for a problem without weights."""
        return np.ones(self.shape[0]) if self.weight is None else self.weight

    @property
    def total_weight(self) -> float:
        """Sum of the weights; the number of rows for a problem without weights."""
        return (
            float(self.shape[0]) if self.weight is None else float(self.space.xp.sum(self.weight))
        )

    @property
    def has_moments(self) -> bool:
        """Whether the moments have been computed already."""
        return "moments" in vars(self)

    def moments_by(self, threads: Threads) -> Moments:
        """Moments of all rows, computed by `threads` at the first use."""
        if not self.has_moments:
            self.keep_moments(
                from_data(
                    self.X,
                    self.Y,
                    self.weight,
                    centre=self.fit_intercept,
                    space=self.space,
                    mapper=threads,
                )
            )
        return self.moments

    def keep_moments(self, moments: Moments) -> None:
        """Store moments of all rows that were computed elsewhere."""
        vars(self)["moments"] = moments

    def target(self, t: int) -> RowData:
        """RowData with one of several targets, with its moments if already computed."""
        problem = replace(self, Y=self.Y[:, [t]])
        if self.has_moments:
            problem.keep_moments(self.moments.target(t))
        return problem

    def refuse_extremes(self) -> None:
        """Raise for columns, targets and weights whose squares or products may leave the range of
        double precision.
        """
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
            return np.asarray(
                self.space.get(xp.max(xp.abs(self.space.cast(A)), axis=0)), dtype=np.float64
            )
        if sp.issparse(A):
            return np.asarray(abs(A).max(axis=0).toarray(), dtype=np.float64).reshape(-1)
        return _largest(A)

    @cached_property
    @blas_threads(1)
    def mean_squares(self) -> Array:
        """Mean weighted squares of the (centred, with an intercept) columns, from a hundred rows."""
        sample = slice(None, None, max(1, self.shape[0] // 100))
        X = self.X[sample]
        weight = self.weights[sample]
        X = X.toarray() if sp.issparse(X) else X
        X = X - (
            weighted_mean(X, None if self.weight is None else weight) if self.fit_intercept else 0.0
        )
        X *= X  # in place: a second copy took six times as long
        return np.asarray(weight @ X / len(weight))

    def take(self, rows: Indices, moments: Moments | None = None) -> RowData:
        """RowData on some of the rows, with their moments if the caller has computed any."""
        take = self.space.xp.take
        row_indices = self.space.put(rows)
        X = (
            sp.csc_array(sp.csr_array(self.X)[rows])
            if sp.issparse(self.X)
            else take(self.X, row_indices, axis=0)
        )
        Y = take(self.Y, row_indices, axis=0)
        weight = None if self.weight is None else take(self.weight, row_indices, axis=0)
        problem = replace(self, X=X, Y=Y, weight=weight)
        if moments is not None:
            problem.keep_moments(moments)
        return problem

    def distinct_rows(self, rows: Indices | None = None) -> int:
        """Number of distinct rows of X, or among `rows`; repeated rows add nothing to the rank."""
        hashes = np.sort(self._row_hashes if rows is None else self._row_hashes[rows])
        return len(hashes) and 1 + int(np.count_nonzero(hashes[1:] != hashes[:-1]))

    def first_of_distinct_rows(self) -> Indices:
        """Index of the first occurrence of every distinct row of X."""
        return np.sort(np.unique(self._row_hashes, return_index=True)[1])

    @cached_property
    def _row_hashes(self) -> NDArray[Any]:
        """Hashes of the rows' bytes; for dense rows sums of their bits times random odd numbers,
        modulo 2^64.
        """
        if not sp.issparse(self.X):
            factors = np.random.default_rng(1).integers(
                0, 2**64, self.shape[1], dtype=np.uint64
            ) | np.uint64(1)
            step = max(1, (1 << 17) // self.shape[1])
            parts = (self.X[start : start + step] for start in range(0, self.shape[0], step))
            bits = (part.view(f"u{part.itemsize}").astype(np.uint64) for part in parts)
            # round numbers end in zeros, which would leave few distinct sums
            return np.concatenate([(part ^ part >> np.uint64(32)) @ factors for part in bits])
        X = sp.csr_array(self.X)
        X.sum_duplicates()
        entries = (slice(start, stop) for start, stop in pairwise(X.indptr))
        return np.array(
            [hash((X.indices[row].tobytes(), X.data[row].tobytes())) for row in entries]
        )

    def cutoff(self, part: Submatrix, columns: Indices) -> Cutoff:
        """Threshold below which a direction of a member is rounding, of the factorisation or of
        centring.
        """
        if self.known_cutoff is not None:
            return self.known_cutoff.take(columns)
        weight = float(part.root @ part.root)
        return Cutoff.of(
            max(part.A.shape, default=1), np.linalg.norm(part.A, axis=0), part.mean_x, weight
        )

    def submatrix(
        self, columns: Indices | slice, rows: Indices | None, dtype: Any = np.float64
    ) -> Submatrix:
        """Gather one member, without the rows outside its sample: rows of weight zero would still
        cost arithmetic.

        ``dtype=numpy.longdouble`` computes means and differences in extended precision, so that
        centring loses nothing.
        """
        A = gather(self.X, columns, rows).astype(dtype, copy=False)
        B = (self.Y if rows is None else self.Y[rows]).astype(dtype, copy=False)
        weight = self.weight if rows is None or self.weight is None else self.weight[rows]
        weight = None if weight is None else weight.astype(dtype, copy=False)
        mean_x = np.zeros(A.shape[1])
        mean_y = np.zeros(B.shape[1])
        total_weight = float(len(A)) if weight is None else float(weight.sum())
        if self.fit_intercept:
            mean_x = weighted_mean(A, weight)
            mean_y = weighted_mean(B, weight)
        A = A - mean_x
        B = B - mean_y
        root = np.ones(len(A), dtype=dtype)
        if weight is not None:
            root = np.sqrt(weight)
            A = A * root[:, None]
            B = B * root[:, None]
        if self.fit_intercept:
            A[:, constant_columns((A * A).sum(axis=0), mean_x, total_weight)] = 0.0
        return Submatrix(A=A, B=B, root=root, mean_x=mean_x, mean_y=mean_y)


@dataclass(frozen=True)
class Columns:
    """Columns and targets, centred and sqrt-weighted, with rows padded by zeros to full panels."""

    A: NDArray[np.float64]  # (p, rows)
    Y: NDArray[np.float64]  # (rows, q)
    n: int  # rows without padding
    mean_x: NDArray[np.float64]  # (p,) means subtracted from X, zeros without intercept
    mean_y: NDArray[np.float64]  # (q,) means subtracted from Y, zeros without intercept
    root: NDArray[np.float64]  # (rows,) roots of the weights, one in the padding
    mean_weights: NDArray[
        np.float64
    ]  # (rows,) weight of every row in the means, zero without intercept
    far: NDArray[np.float64]  # (p,) rounding of each column by centring
    relative: float  # fraction of a relation's length below which it is rounding

    @property
    def for_kernels(self) -> MemberData:
        """Arrays by which kernels confirm dependent columns."""
        return MemberData(self.A, self.Y, self.far, self.relative)

    @classmethod
    def from_problem(
        cls, problem: RowData, threads: Threads | None = None, rows: Indices | None = None
    ) -> Columns:
        """Copy all rows, centred at the means of `rows`, or of all rows by default."""
        part = problem if rows is None else problem.take(rows)
        n, p = problem.shape
        mean_x, mean_y = part.means
        memory.require(
            8.0 * n * p,
            "A copy of X by columns",
            "Use fewer rows, or drop columns that repeat others.",
        )
        A = np.zeros((p, _padded(n)))
        root = np.sqrt(problem.weights)

        def work(start: int, stop: int) -> None:
            raw = problem.X[:, start:stop]
            centred = A[start:stop, :n]
            np.subtract(
                (raw.toarray() if sp.issparse(raw) else raw).T,
                mean_x[start:stop, None],
                out=centred,
            )
            if problem.weight is not None:
                centred *= root

        (threads or Threads()).without_blas(work, p)
        if problem.fit_intercept:
            A_part = A if rows is None else A[:, rows]
            squares = (
                np.diagonal(part.moments.G)
                if part.has_moments
                else np.einsum("jl,jl->j", A_part, A_part)
            )
            A[constant_columns(squares, mean_x, part.total_weight)] = 0.0
        far = 4 * EPS * np.abs(mean_x) * np.sqrt(part.total_weight)
        columns = cls.plain(
            A, (problem.Y - mean_y) * root[:, None], far, rounding_of_factors(max(n, p))
        )
        columns.root[:n] = root
        columns.mean_weights[:n] = root**2 / part.total_weight * problem.fit_intercept
        return replace(columns, n=n, mean_x=mean_x, mean_y=mean_y)

    @classmethod
    def plain(cls, A: Array, Y: Array, far: Array | None = None, relative: float = 0.0) -> Columns:
        """Unweighted, uncentred columns (p, n) and targets (n, q), such as a triangular factor or
        rows to predict.
        """
        p, n = A.shape
        q = Y.shape[1]
        size = _padded(n)
        padded_Y = np.zeros((size, q))
        padded_Y[: len(Y)] = Y
        return cls(
            A=np.ascontiguousarray(A if size == n else np.pad(A, ((0, 0), (0, size - n)))),
            Y=padded_Y,
            n=n,
            mean_x=np.zeros(p),
            mean_y=np.zeros(q),
            root=np.ones(size),
            mean_weights=np.zeros(size),
            far=np.zeros(p) if far is None else far,
            relative=relative,
        )


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES


def _entries_are_ordinary(X: Any) -> bool:
    """Whether the largest entry of every nonzero column is sure to be an ordinary number; False
    leaves it open.

    The sum of squares, one pass over many rows in their order in memory, shows that no entry is too
    large. The first rows show for all but a few columns that the column is not too small.
    """
    if X.dtype == np.float32:  # its range is within the ordinary numbers
        return True
    if not (isinstance(X, np.ndarray) and X.flags.c_contiguous and len(X) >= 1024):
        return False
    small_columns = np.flatnonzero(_largest(X[:64]) < ORDINARY[0])
    if 16 * len(small_columns) >= X.shape[1]:
        return False
    largest = _largest(X[:, small_columns])
    if np.any((largest > 0) & (largest < ORDINARY[0])):
        return False
    with blas_threads(1):  # more threads would go on spinning and take the cores from members
        return bool(np.vdot(X, X) <= ORDINARY[1] ** 2)


def _largest(X: NDArray[Any]) -> Array:
    """Largest absolute entry of every column of a dense X."""
    highest = X.max(axis=0, initial=0.0)
    lowest = X.min(axis=0, initial=0.0)
    return np.asarray(np.maximum(highest, -lowest), dtype=np.float64)


def gather(X: Any, columns: Indices | slice, rows: Indices | None) -> Array:
    """Columns of some rows (None: all) of dense or sparse X, dense and in float64."""
    if sp.issparse(X):
        member_columns = X[:, columns]
        return np.asarray(
            (member_columns if rows is None else member_columns[rows]).toarray(), dtype=np.float64
        )
    dense: NDArray[Any] = X[:, columns] if rows is None else X[rows[:, None], columns]
    return dense.astype(np.float64, copy=False)
