"""Rows to train and to test on, as `cv` has them: from a splitter, or one by one as they were given."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import PredefinedSplit, check_cv

from .._engines import Memory
from .._members.problem import Problem
from .._selection.paths import Splits
from .inputs import item_numbers

__all__ = ["row_splits", "suspicious_repeats"]

MANY_REPEATS = 0.05  # of the rows
FEW_LEVELS = 20  # values of a column that has levels, whatever the rows; more with many rows


def row_splits(cv: Any, engine: Memory, groups: Any) -> Splits | None:
    """(train, test) index pairs over the rows with positive weight, or None without k-fold."""
    if cv is None or isinstance(cv, str):
        return None
    rows, kept = engine.n_given, engine.kept_rows
    if groups is not None and len(groups) != rows:
        raise ValueError(f"groups has {len(groups)} entries, but there are {rows} rows; every row needs its group.")
    if hasattr(cv, "__iter__") or isinstance(cv, PredefinedSplit):  # in numbers of the rows that were given
        splits = _renumbered(_pairs(cv.split() if isinstance(cv, PredefinedSplit) else cv), rows, kept)
    else:
        splits = _split_rows(cv, engine.problem, groups if groups is None or kept is None else np.asarray(groups)[kept])
    whole = [(train, test) for train, test in splits if len(train) and len(test)]
    if not whole:
        raise ValueError(
            f"cv={cv!r} gave no split with rows to train and to test on. A generator is used up by its first "
            f"fit; give a list or a splitter."
        )
    return whole


def _split_rows(cv: Any, problem: Problem, groups: Any) -> Splits:
    """Splits by a splitter of the rows with positive weight: the others count as dropped."""
    splitter, n = check_cv(cv), len(problem.Y)
    y = problem.Y[:, 0] if problem.Y.shape[1] == 1 else problem.Y
    if isinstance(cv, Integral) and int(cv) > n:
        raise ValueError(f"cv={cv!r} asks for more folds than the {n} rows there are.")
    return [(np.asarray(train), np.asarray(test)) for train, test in splitter.split(problem.X, y, groups)]


def _pairs(splits: Any) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Splits that were given one by one, as arrays."""
    found = []
    for split in splits:
        try:
            train, test = (np.asarray(rows) for rows in split)
        except (TypeError, ValueError):
            raise ValueError(
                f"cv holds {split!r:.60}, but every split is a pair of arrays: rows to train on, rows to test on."
            ) from None
        found.append((train, test))
    return found


def _renumbered(splits: Splits, n: int, kept: NDArray[np.int64] | None) -> Splits:
    """Given splits, in the numbers of the rows with positive weight."""
    position = np.full(n, -1)
    position[np.arange(n) if kept is None else kept] = np.arange(n if kept is None else len(kept))

    def renumber(rows: NDArray[Any]) -> NDArray[Any]:
        numbers = item_numbers(rows, n)
        if numbers is None:
            raise ValueError(
                f"cv holds a split with rows of type {rows.dtype} and shape {rows.shape}; whole numbers are needed, or "
                f"a mask of all {n} rows."
            )
        beyond = numbers[(numbers < -n) | (numbers >= n)]
        if len(beyond):
            raise ValueError(f"cv holds a split with row {beyond[0]}, but there are {n} rows (0 to {n - 1}).")
        found = position[numbers]
        return found[found >= 0]

    return [(renumber(train), renumber(test)) for train, test in splits]


def suspicious_repeats(problem: Problem) -> int:
    """How many rows repeat others although nothing in the data makes that likely; 0 where they are few.

    A left-out row whose twin stays in the data says little about new rows. But where columns only have levels,
    independent rows meet in the same cells, and leave-one-out is right about rows of the same cells: there, rows count
    that repeat others with their targets, if these are as good as continuous.
    """
    n = problem.shape[0]
    repeated = n - problem.distinct_rows()
    if repeated <= MANY_REPEATS * n:
        return 0
    if not _has_levels_only(problem):
        return repeated
    if len(np.unique(problem.Y[:, 0])) < n / 4:
        return 0
    whole = (
        sp.hstack([sp.csr_array(problem.X), problem.Y], format="csr")
        if sp.issparse(problem.X)
        else np.hstack([problem.X, problem.Y])
    )
    twins = n - replace(problem, X=whole).distinct_rows()
    return twins if twins > MANY_REPEATS * n else 0


def _has_levels_only(problem: Problem) -> bool:
    """Whether every column has few different values."""
    n, p = problem.shape
    most = max(FEW_LEVELS, n // 20)
    X = sp.csc_array(problem.X) if sp.issparse(problem.X) else problem.X
    columns = (X[:, [j]].data if sp.issparse(X) else X[:, j] for j in range(p))
    return all(len(np.unique(column)) <= most for column in columns)
