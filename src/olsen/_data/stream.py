"""Training rows that come in batches and are not kept: their triangular factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import HOST, row_products
from ..subsets import Design
from .fits import FoldFit, NeedsRows
from .moments import Moments
from .rows import RowData
from .triangle import CentredRows, Triangle

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StreamData:
    """Triangular factor of rows that came in batches."""

    triangle: Triangle
    fit_intercept: bool
    n_given: int = 0  # number of rows in all batches, including rows of weight zero
    single_target: bool = True
    dtype: Any = np.float64

    why_no_rows = "partial_fit keeps no rows; call fit with all of them in one array to have them"
    rows = None
    host_rows = None
    space = HOST
    prefers_factor = True
    names = None
    kept_rows = None
    from_arrays = True
    is_stored = True
    can_be_read_again = False
    has_triangles = True

    @classmethod
    def empty(cls, p: int, q: int, fit_intercept: bool) -> StreamData:
        """Stream of no rows yet."""
        return cls(Triangle.empty(p, q), fit_intercept)

    def add(self, batch: RowData) -> StreamData:
        """Return the stream that includes the rows of a batch."""
        if self.triangle.n_targets != batch.Y.shape[1]:
            raise ValueError(
                f"y has {batch.Y.shape[1]} targets, but earlier batches had"
                f" {self.triangle.n_targets}."
            )
        triangle = self.triangle.add(batch.X, batch.Y, batch.weight, self.fit_intercept)
        return StreamData(
            triangle,
            self.fit_intercept,
            n_given=self.n_given + batch.n_rows_given,
            single_target=batch.single_target,
            dtype=batch.dtype,
        )

    @property
    def summed(self) -> StreamData:
        """The data themselves, which are sums of rows."""
        return self

    @property
    def n_rows(self) -> int:
        """Number of rows with positive weight."""
        return self.triangle.n_rows

    @property
    def n_rows_given(self) -> int:
        """Number of rows given to fit, with those of weight zero."""
        return self.n_given

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.triangle.shift) - self.triangle.n_targets

    def complete(self, design: Design) -> Design:
        """Add the shape of the data to a design."""
        return replace(
            design, n_rows=self.triangle.n_rows, n_columns=self.n_columns, n_given=self.n_given
        )

    def reopen(self) -> StreamData:
        """The data to be kept with a fit."""
        return self

    def loaded_if_small(self, many_rows: int) -> StreamData:
        """The stream itself: its rows are gone."""
        return self

    def factor(self) -> CentredRows:
        """Few centred rows with the least-squares solutions of all rows."""
        return self.triangle.centred(self.fit_intercept)

    def total_moments(self) -> Moments:
        """Moments of all rows."""
        X, Y, mean_x, mean_y, _ = self.factor()
        return Moments(
            n_rows=self.triangle.n_rows,
            weight=float(self.triangle.R[0, 0] ** 2),
            mean_x=mean_x,
            mean_y=mean_y,
            G=row_products(X.T),
            C=X.T @ Y,
            yy=(Y * Y).sum(axis=0),
            centred=self.fit_intercept,
        )

    def largest(self, values_of: Callable[[Any], Array]) -> float:
        """Refuse: the rows are gone."""
        raise NeedsRows(
            f"the largest value of the training rows needs the rows: {self.why_no_rows}."
        )

    def fold_moments(self, count: int, seed: int) -> list[Moments]:
        """Refuse: the rows are gone."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def in_groups(self, count: int, seed: int) -> StreamData:
        """Refuse: the rows are gone."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def training_groups(self) -> list[StreamData]:
        """Refuse: the rows are gone."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def with_errors(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        """Refuse: the rows are gone."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")
