"""Training rows in memory or on a device, and the submatrix of a member."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.arrays import HOST, Space
from .._execution.threads import Threads, blas_threads, cached_property
from .._trust import ORDINARY, Cutoff, refuse_extremes, refuse_weights
from ..subsets import Design, row_groups
from .accumulator import fold_sums
from .fits import FoldFit
from .moments import Moments, constant_columns, from_data, weighted_mean
from .sources import require_positive

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK_ENTRIES = 1 << 18  # numbers in a block of rows, which stays in a cache


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
    """Training rows as given; centring and weighting are implicit.

    The rows are arrays of the host, or of another library on its device (`space`). Rows of weight
    zero are dropped before anything is drawn, see :meth:`from_arrays`.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
        Never copied.
    Y : array of shape (n, q)
        Targets.
    weight : array of shape (n,) or None
        Positive weights.
    fit_intercept : bool
        Whether a column of ones is always in.
    space : Space
        Where X, Y and weights live.
    known_cutoff : Cutoff or None
        Cut-off of all columns, where X is a factor of rows that were centred before.
    single_target : bool
        Whether y was a vector.
    n_given : int or None
        Number of rows before rows of weight zero were dropped; None: all are here.
    kept_rows : ndarray or None
        Indices of the rows with positive weight; None: all.
    names : list of str or None
        Column names of rows that were read from blocks.
    from_arrays : bool
        Whether the data came as arrays, whose columns scikit-learn has recorded on the estimator.
    order : ndarray or None
        Row indices in the order in which random folds count the rows; None: as given.
    """

    X: Any
    Y: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None
    fit_intercept: bool = True
    space: Space = HOST
    known_cutoff: Cutoff | None = None
    single_target: bool = True
    n_given: int | None = None
    kept_rows: Indices | None = None
    names: list[str] | None = None
    from_arrays: bool = True
    order: Indices | None = None

    summed = None
    can_be_read_again = True

    def with_positive_weights(self, min_rows: int) -> RowData:
        """Drop rows of weight zero, and refuse entries whose squares leave double precision."""
        n = self.shape[0]
        data = replace(self, n_given=n)
        if self.weight is not None:
            positive_rows = np.flatnonzero(self.space.get(self.weight) > 0)
            require_positive(len(positive_rows), n, min_rows)
            if len(positive_rows) < n:
                data = replace(self.take(positive_rows), n_given=n, kept_rows=positive_rows)
        data.refuse_extremes()
        return data

    # The interface of training data

    @property
    def why_no_rows(self) -> str:
        """Reason and way out, for requests that need the rows on the host; empty if they are."""
        if self.space.on_host:
            return ""
        return (
            "leave-one-out is not computed on other devices; move X and y to the host as NumPy"
            " arrays"
        )

    @property
    def rows(self) -> RowData:
        """The rows, on the host or on a device."""
        return self

    @property
    def host_rows(self) -> RowData | None:
        """The rows on the host; None if they are on a device."""
        return self if self.space.on_host else None

    @property
    def is_stored(self) -> bool:
        """Whether pickles and model files may hold the rows."""
        return self.space.on_host

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return self.shape[1]

    @property
    def dtype(self) -> Any:
        """Type of coefficients and predictions."""
        is_integer = self.space.on_host and self.X.dtype.kind in "iu"
        return np.dtype(np.float64) if is_integer else self.X.dtype

    def complete(self, design: Design) -> Design:
        """Add the shape of the data and the drawable rows to a design."""
        n, p = self.shape
        distinct_rows = None
        if design.sampling == "bernoulli" and self.space.on_host:
            # a row of weight two is equivalent to two equal rows
            distinct_rows = self.distinct_rows()
        return replace(
            design,
            n_rows=n,
            n_columns=p,
            distinct_rows=distinct_rows,
            n_given=self.n_rows_given,
            kept_rows=self.kept_rows,
        )

    def reopen(self) -> RowData:
        """The data to be kept with a fit."""
        return self

    def loaded_if_small(self, many_rows: int) -> RowData:
        """Rows on the host if there are fewer than `many_rows` or than columns; or self."""
        n, p = self.shape
        if self.space.on_host or n >= max(many_rows, p):
            return self
        return self.on_host()

    def on_host(self) -> RowData:
        """The rows as NumPy arrays."""
        if self.space.on_host:
            return self
        get = self.space.get
        weight = None if self.weight is None else np.asarray(get(self.weight), dtype=np.float64)
        X = np.asarray(get(self.X))
        Y = np.asarray(get(self.Y), dtype=np.float64)
        return replace(self, X=X, Y=Y, weight=weight, space=HOST)

    def gathered(self, columns: Indices, rows: Indices | None) -> RowData:
        """Dense copy of some columns and rows (None: all rows)."""
        Y = self.Y if rows is None else self.Y[rows]
        weight = self.weight
        if weight is not None and rows is not None:
            weight = weight[rows]
        return replace(self, X=gather(self.X, columns, rows), Y=Y, weight=weight, known_cutoff=None)

    def in_groups(self, count: int, seed: int) -> RowData:
        """The rows, of which any groups can be taken."""
        return self

    def total_moments(self) -> Moments:
        """Moments of all rows, on the host."""
        return self.moments.on_host()

    def largest(self, values_of: Callable[[Any], Array], *, copied_bytes: int = 1 << 28) -> float:
        """Largest of ``values_of(X)`` over all rows; of a device, `copied_bytes` at a time."""
        n, p = self.shape
        step = n if self.space.on_host else max(1, copied_bytes // (8 * p))
        parts = [
            self.space.get(self.X[start : min(start + step, n), :]) for start in range(0, n, step)
        ]
        return max(float(np.max(values_of(part))) for part in parts)

    def fold_moments(self, count: int, seed: int) -> list[Moments]:
        """Per-fold moments on the data's device if there is room; the same folds as for blocked
        data.
        """
        fold = self._fold_of_rows(count, seed)
        space = self.space
        if np.bincount(fold, minlength=count).min() == 0:
            raise ValueError(
                f"{self.shape[0]} rows are too few for {count} folds of random rows; use fewer"
                " folds."
            )
        if space.on_host and not sp.issparse(self.X):
            moments = fold_sums(
                self.X, self.Y, self.weight, fold=fold, count=count, centre=self.fit_intercept
            )
            self.keep_moments(Moments.merge_all(moments))
            return moments
        folds = [np.flatnonzero(fold == f) for f in range(count)]
        # The moments stay on the device if it has double precision, which Cholesky factors need,
        # and memory for several copies of the Gram matrices, which the comparison of sizes needs.
        gram_bytes = 64.0 * self.n_columns**2 * count
        stay_on_device = space.dtype == space.xp.float64 and gram_bytes < space.batch_bytes(np.inf)
        if not stay_on_device:
            return [self.take(fold_rows).moments.on_host() for fold_rows in folds]
        moments = [self.take(fold_rows).moments for fold_rows in folds]
        self.keep_moments(Moments.merge_all(moments))
        return moments

    def with_errors(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        """Add held-out errors of all rows to the fits without each random fold."""
        fold = self._fold_of_rows(len(fits), seed)
        rows_of_folds = [np.flatnonzero(fold == f) for f in range(len(fits))]
        if not self.space.on_host:
            return [self.tested(fit, rows) for fit, rows in zip(fits, rows_of_folds, strict=True)]
        prediction = self._held_out_predictions(fits, fold)
        tested = []
        for fit, rows in zip(fits, rows_of_folds, strict=True):
            of_fold = prediction.take(rows, axis=0)
            residual = np.asarray(self.Y.take(rows, axis=0) - of_fold, dtype=float)
            tested.append(fit._replace(residual=residual, prediction=of_fold))
        return tested

    def _held_out_predictions(self, fits: list[FoldFit], fold: NDArray[np.int16]) -> Array:
        """Predictions (n, q) of all rows by the fit without their fold, from one product with every
        block of rows for all fits.
        """
        n, p = self.shape
        n_fits = len(fits)
        coef = np.concatenate([fit.coef for fit in fits]).T  # (p, fits q)
        intercept = np.concatenate([fit.intercept for fit in fits])
        X = self.X.tocsr() if sp.issparse(self.X) else self.X
        predictions = np.empty(self.Y.shape)
        step = max(1, BLOCK_ENTRIES // max(p, coef.shape[1]))
        for start in range(0, n, step):
            block = slice(start, min(start + step, n))
            of_fits = np.asarray(X[block] @ coef) + intercept
            by_fit = of_fits.reshape(len(of_fits), n_fits, -1)
            predictions[block] = by_fit[np.arange(len(by_fit)), fold[block]]
        return predictions

    def held_out_predictions(self, fits: list[FoldFit], seed: int) -> Array:
        """Prediction of every row by the fit without its random fold, (n, q), from fits with their
        held-out errors.
        """
        fold = self._fold_of_rows(len(fits), seed)
        predictions = np.empty(self.Y.shape)
        for f, fit in enumerate(fits):
            assert fit.prediction is not None
            predictions[fold == f] = fit.prediction
        return predictions

    def tested(self, fit: FoldFit, rows: Indices) -> FoldFit:
        """The fit with predictions and residuals, (rows, q) on the host, of some rows."""
        part = self.take(rows)
        space = self.space
        if space.on_host:
            return fit.tested(part.X, part.Y)
        prediction = space.cast(part.X) @ space.put(fit.coef.T) + space.put(fit.intercept)
        residual = np.asarray(space.get(space.cast(part.Y) - prediction), dtype=float)
        return fit._replace(
            residual=residual, prediction=np.asarray(space.get(prediction), dtype=float)
        )

    @property
    def n_rows_given(self) -> int:
        """Number of rows given to fit, with those of weight zero."""
        return self.shape[0] if self.n_given is None else self.n_given

    def splits_by_index(self, count: int, seed: int) -> list[tuple[Indices, Indices]]:
        """Rows to train on and to test on, for the folds of :meth:`fold_moments`."""
        fold = self._fold_of_rows(count, seed)
        return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]

    def _fold_of_rows(self, count: int, seed: int) -> NDArray[np.int16]:
        """Number of the fold of every row, which does not depend on which rows have weight zero."""
        if self.order is not None:
            fold = np.empty(self.shape[0], dtype=np.int16)
            fold[self.order] = row_groups(0, self.shape[0], count, seed)
            return fold
        fold = row_groups(0, self.n_rows_given, count, seed).astype(np.int16)
        return fold if self.kept_rows is None else fold[self.kept_rows]

    # Rows as a least-squares problem

    @cached_property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.X.shape
        return shape

    @cached_property
    def null_rank(self) -> int:
        """Rank of the columns that are always in: one with an intercept."""
        return int(self.fit_intercept)

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

    @cached_property
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
            vars(self)["moments"] = from_data(
                self.X,
                self.Y,
                self.weight,
                centre=self.fit_intercept,
                space=self.space,
                threads=threads,
            )
        return self.moments

    def keep_moments(self, moments: Moments) -> None:
        """Store moments of all rows that were computed elsewhere."""
        vars(self)["moments"] = moments

    def targets_at(self, which: Indices | slice) -> RowData:
        """The rows with some of the targets, with their moments if already computed."""
        problem = replace(self, Y=self.Y[:, which])
        if self.has_moments:
            problem.keep_moments(self.moments.targets_at(which))
        return problem

    def columns_at(self, columns: Indices) -> RowData:
        """The rows with some of the columns."""
        return replace(self, X=self.X[:, columns])

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
        row_indices = rows if self.space.on_host else self.space.put(rows)
        X = (
            sp.csc_array(sp.csr_array(self.X)[rows])
            if sp.issparse(self.X)
            else take(self.X, row_indices, axis=0)
        )
        Y = take(self.Y, row_indices, axis=0)
        weight = None if self.weight is None else take(self.weight, row_indices, axis=0)
        problem = replace(self, X=X, Y=Y, weight=weight, n_given=None, kept_rows=None, order=None)
        if moments is not None:
            problem.keep_moments(moments)
        return problem

    def distinct_rows(self, rows: Indices | None = None) -> int:
        """Number of distinct rows of X, or among `rows`; repeated rows add nothing to the rank."""
        hashes = np.sort(self._row_hashes if rows is None else self._row_hashes[rows])
        return len(hashes) and 1 + int(np.count_nonzero(hashes[1:] != hashes[:-1]))

    def fewest_distinct_rows(self, row_sets: Iterable[Indices]) -> int:
        """Least number of distinct rows of X in any of several sets of rows."""
        return min(self.distinct_rows(rows) for rows in row_sets)

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


def rows_on_host(
    X: Any, y: NDArray[Any], weight: Array | None, fit_intercept: bool, min_rows: int = 2
) -> RowData:
    """Training rows from checked arrays; y and weights are copied, because users may change their
    arrays in place.
    """
    X = sp.csc_array(X) if sp.issparse(X) else X
    Y = np.array(y, dtype=np.float64).reshape(len(y), -1)
    weight = None if weight is None else np.array(weight)
    rows = RowData(X, Y, weight, fit_intercept, single_target=y.ndim == 1)
    return rows.with_positive_weights(min_rows)


def _entries_are_ordinary(X: Any) -> bool:
    """Whether the largest entry of every nonzero column is sure to be an ordinary number; False
    leaves it open.

    The sum of squares, one pass over many rows in their order in memory, shows that no entry is too
    large. The first rows show for all but a few columns that the column is not too small.
    """
    if X.dtype != np.float64:  # the range of single precision and integers is ordinary
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
