"""An ensemble refitted without folds of rows, wherever these are: what cross-validated intervals are made of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._members import Members
from ..subsets import Design, row_groups

__all__ = ["FoldFit", "LeftOutFits", "Refit", "fold_design", "residuals", "thinned"]

Array = NDArray[np.float64]
PARTS = 1 << 16  # into which rows are thrown to be thinned
OTHER = 0x5EED  # so that thinning has nothing to do with the folds


class Refit(NamedTuple):
    """What is refitted: members of a design, drawn as for all rows, with their weights and the scale."""

    design: Design
    weights: NDArray[np.float64]
    scale: float

    @property
    def number(self) -> float:
        """How many members; without weights they are infinitely many."""
        return len(self.weights) or math.inf


class FoldFit(NamedTuple):
    """An ensemble without some rows, and how far it is off for them; on the host."""

    coef: Array  # (q, p)
    intercept: Array  # (q,)
    residual: Array | None  # (rows, q); None: not looked at yet

    @classmethod
    def of(cls, members: Members, scale: float, q: int) -> FoldFit:
        """Before any row was looked at."""
        coef, intercept = members.scaled(scale, members.coef.dtype)
        get = members.space.get
        return cls(np.asarray(get(coef), dtype=float), np.asarray(get(intercept), dtype=float), np.zeros((0, q)))


class LeftOutFits(NamedTuple):
    """The ensemble as the data give it now, where that was looked at, and without each of some folds."""

    whole: Members | None
    fits: list[FoldFit]


def fold_design(refit: Refit, n_rows: int) -> Design:
    """The design for fewer rows: the same columns, and the same share of the rows.

    The limit of determinantal members is that of the rows there are.
    """
    design, rows = refit.design, refit.design.max_samples
    if isinstance(rows, (int, np.integer)):
        rows = max(1, int(rows) * n_rows // design.n_rows)
    process = design.process if len(refit.weights) else None
    return replace(design, n_rows=n_rows, n_given=n_rows, kept_rows=None, max_samples=rows, process=process)


def residuals(fit: FoldFit, X: Any, Y: Any) -> Array:
    """Of rows on the host, (rows, q)."""
    return np.asarray(Y - (np.asarray(X @ fit.coef.T) + fit.intercept), dtype=float)


def thinned(first: int, count: int, n_rows: int, most: int, seed: int) -> NDArray[np.bool_]:
    """Which of consecutive rows are kept, so that about `most` of all are: by their numbers, however rows are cut."""
    if n_rows <= most:
        return np.ones(count, dtype=bool)
    return np.asarray(row_groups(first, count, PARTS, seed ^ OTHER) < PARTS * most / n_rows)
