"""Cautions about a table that can be used, but may not say what its owner thinks: few, and none on
ordinary data.

Each rule was tried on the clean tables of the benchmarks, where it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .._report.formatting import counted, quoted
from .._tables.columns import Column
from .._tables.problems import listed, option

Array = NDArray[np.float64]
LEAK_R2 = 0.999  # of the target and one column alone
MIN_ROWS = 20  # below, chance explains what the rules look for
WILD_RATIO = 10  # distance of the farthest target from the median, to that of the second farthest
MIN_SINGLE_LEVELS = 10  # categories with one row each
ID_NAME = re.compile(
    r"(?i)(^|[\W_])(id|ids|key|code|nr|no|number|index|uuid|pk)$|[a-z](Id|ID|Key|No|Nr)$"
)


def cautions(columns: list[Column], X: Array, y: Array | None) -> list[str]:
    """Cautions about a table in memory.

    Parameters
    ----------
    columns : list of Column
        Kinds of the columns of `X`.
    X : ndarray of shape (n_rows, n_encoded_columns)
        Encoded columns.
    y : ndarray of shape (n_rows,), default=None
        Target, if there is one.

    Returns
    -------
    list of str
    """
    if len(X) < MIN_ROWS:
        return []
    parts = _parts(columns, X)
    found = [*_constant(parts), *_identifiers(parts), *_rare(parts), *_in_order_of_time(parts)]
    if y is not None and np.ptp(y) > 0:
        found += [*_leaks(parts, y), *_wild_target(y)]
    return found


def copies(columns: list[Column], X: Array) -> list[str]:
    """A note on columns of numbers that are linear functions of others, and on equal columns of
    categories, for encoded columns `X`.
    """
    first: dict[bytes, str] = {}
    pairs = []
    for column, part in _parts(columns, X):
        centred = part - part.mean(axis=0)
        lengths = np.sqrt(np.sum(centred**2, axis=0))
        if not lengths.all():
            continue
        centred /= lengths
        if part.shape[1] == 1:
            centred *= np.sign(centred[np.abs(centred).argmax()])
        original = first.setdefault(np.round(centred, 8).tobytes(), column.name)
        if original != column.name:
            pairs.append((column.name, original))
    if not pairs or len(X) < MIN_ROWS:
        return []
    name, original = pairs[0]
    n_others = len(pairs) - 1
    verb = "repeats" if n_others == 1 else "repeat"
    others = f", and {counted(n_others, 'more column')} {verb} others" if n_others else ""
    return [
        f"column {quoted(name)} repeats {quoted(original)}{others}: effects are divided among copies;"
        f" leave them out for effects of their own, with {option('--drop', name)}."
    ]


Parts = list[tuple[Column, Array]]  # columns of the table with their encoded columns


def _parts(columns: list[Column], X: Array) -> Parts:
    """Columns of the table with their encoded columns, without those that mark missing cells."""
    parts = []
    start = 0
    for column in columns:
        width = column.width
        parts.append((column, X[:, start : start + width - column.indicator]))
        start += width
    return parts


def _constant(parts: Parts) -> Iterator[str]:
    names = [column.name for column, part in parts if not np.ptp(part, axis=0).any()]
    if names:
        verbs = "is constant and explains" if len(names) == 1 else "are constant and explain"
        yield f"{counted(len(names), 'column')} {verbs} nothing: {listed(names)}."


def _identifiers(parts: Parts) -> Iterator[str]:
    """Whole numbers, each once, that are called like identifiers, or rise or fall from row to row;
    those from 1 to the number of rows have a note of the reader.
    """
    for column, part in parts:
        values = part[:, 0]
        if column.kind != "number" or not (values == np.round(values)).all():
            continue
        steps = np.diff(np.sort(values))
        if not steps.all() or (steps == 1).all():
            continue
        moves = np.diff(values)
        in_order = (moves > 0).all() or (moves < 0).all()
        if in_order or ID_NAME.search(column.name):
            order = " in the order of the rows" if in_order else ""
            yield (
                f"column {quoted(column.name)} holds whole numbers, each once{order}; if they are"
                f" identifiers, leave it out with {option('--id', column.name)}."
            )


def _rare(parts: Parts) -> Iterator[str]:
    for column, part in parts:
        n_single = int((part.sum(axis=0) == 1).sum()) if column.kind == "category" else 0
        if n_single >= max(MIN_SINGLE_LEVELS, part.shape[1] / 2):
            yield (
                f"{n_single} of {part.shape[1]} categories of column {quoted(column.name)} have one"
                f" row each, which they describe exactly; if they name rows, leave it out with"
                f" {option('--id', column.name)}."
            )


def _in_order_of_time(parts: Parts) -> Iterator[str]:
    for column, part in parts:
        steps = np.diff(part[:, 0])
        is_sorted = (steps >= 0).all() or (steps <= 0).all()
        if column.kind == "date" and is_sorted and np.count_nonzero(steps) >= MIN_ROWS / 2:
            yield (
                f"the rows are in the order of {quoted(column.name)}: errors are those of rows between"
                " others in time, not of a forecast; --groups holds out whole periods."
            )


def _leaks(parts: Parts, y: Array) -> Iterator[str]:
    """Columns of which the target is nearly a linear function."""
    centred_y = y - y.mean()
    for column, part in parts:
        centred = part - part.mean(axis=0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            r2 = (centred_y @ centred) ** 2 / (centred_y @ centred_y) / (centred**2).sum(axis=0)
        if (r2 > LEAK_R2).any():
            yield (
                f"column {quoted(column.name)} alone explains {np.nanmax(r2):.3%} of the variance of"
                " the target: if it is computed from the target, or known only after it, leave it out"
                f" with {option('--drop', column.name)}."
            )


def _wild_target(y: Array) -> Iterator[str]:
    """A target that is much farther from the median than all others."""
    distance = np.abs(y - np.median(y))
    second, largest = np.sort(distance)[-2:]
    if largest > WILD_RATIO * second > 0:
        row = int(distance.argmax())
        yield (
            f"the target of one row is {y[row]:g}, {largest / second:.1f} times as far from the median"
            f" as that of any other (row {row + 1} of those used); if it is a mistake, correct it."
        )
