r"""Dask arrays and data frames: only sums travel, nothing of the length of the data comes to the client.

Moments of every chunk are merged as a tree, and 8 p^2 bytes come to the client, once. Data with fewer rows than the
members have columns are loaded instead: their products would be larger than they are.

Chunks are merged in their order whatever worker had them, so a lost worker changes nothing: Dask makes its chunks
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .._members import Members
from .._moments import Accumulator, DistinctRows, Moments, Triangle
from ..subsets import Design, resolve_size
from .blocks import Summary, add_rows, fits_of_others, fold_errors, groups_for, require_rows, solve_summed
from .determinantal import limit_of
from .engine import Options, nobody
from .left_out import FoldFit, LeftOutFits, Refit
from .memory import Memory
from .sources import (
    BLOCK_BYTES,
    Checked,
    check_columns,
    check_weights,
    name_bad_rows,
    named_columns,
    refuse_text,
    split_rows,
)

__all__ = ["Dask", "Place", "RowParts", "compute", "is_dask", "predict", "row_parts", "tree"]

Array = NDArray[np.float64]
MEMBERS_AT_ONCE = 8  # members of one task, where members are tasks


class Dask:
    """Rows of a Dask collection; how they are worked on is decided when the design is known."""

    why_no_rows = "rows of a Dask collection stay on the cluster; compute X to an array in memory to have them"

    arrays = False

    def __init__(self, X: Any, y: Any, weight: Any, options: Options) -> None:
        self.X, self.y, self.weight, self.options = X, y, weight, options
        self._parts: RowParts | None = None
        self._summary: Summary | None = None
        self._loaded: Memory | None = None  # the rows, where they are fewer than the columns of members

    @property
    def names(self) -> list[str] | None:
        return self._rows(lengths=False).names

    @property
    def problem(self) -> None:
        return None

    @property
    def n_columns(self) -> int:
        return self._rows(lengths=False).n_columns

    @property
    def single_target(self) -> bool:
        return (self._loaded or self.summary).single_target

    @property
    def dtype(self) -> Any:
        return (self._loaded or self.summary).dtype

    def complete(self, design: Design) -> Design:
        rows = self._rows(lengths=not design.all_rows)
        if self._summary is None and self._loaded is None:
            columns = design.max_features
            size = 0 if np.ndim(columns) else resolve_size(columns, rows.n_columns, "max_features")
            if 0 <= rows.n_rows <= size:
                self._loaded = _load(rows, self.options)
            else:
                groups, p = groups_for(design), rows.n_columns
                instead = "Use fewer columns, or max_samples=1.0." if groups > 1 else "Use fewer columns."
                memory.require(32.0 * p * p * groups, f"Summing {groups} Gram matrices of {p} columns", instead)
                self._summary = self._sum(groups, design.seed)
        return self.summary.completed(design) if self._loaded is None else self._loaded.complete(design)

    def folds(self, count: int, seed: int) -> list[Moments]:
        self._rows(lengths=True)
        self._summary = self._sum(count, seed)
        return self._summary.parts

    def again(self) -> Dask:
        return Dask(self.X, self.y, self.weight, replace(self.options, listen=nobody))

    def sums(self) -> Moments:
        self._rows(lengths=False)
        parts = self._sum(1, 0).parts if self._summary is None else self._summary.parts
        return Moments.merge_all(parts)

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        self._rows(lengths=True)
        summary = self._sum(count, seed)
        fits = self.errors_of(fits_of_others(summary, refit, self.options), seed, most, summary.n_given)
        return LeftOutFits(solve_summed(summary, refit.design, 0, refit.number, self.options), fits)

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        rows = self._rows(lengths=True)
        tasks = _tasks(_chunk_errors, rows, fits, seed, rows.n_rows, most)
        errors: list[Array] = compute(tree(tasks, _join_errors))[0]
        return [fit._replace(residual=own) for fit, own in zip(fits, errors, strict=True)]

    def solve(self, design: Design, start: int, stop: float, weights: Array | None = None) -> Members:
        if self._loaded is not None:
            return self._loaded.solve(design, start, stop)
        if stop == np.inf:
            return limit_of(self, design)
        return solve_summed(self.summary, design, start, int(stop), self.options)

    def _rows(self, *, lengths: bool) -> RowParts:
        if self._parts is None or (lengths and self._parts.n_rows < 0):
            self._parts = row_parts(self.X, self.y, self.weight, lengths=lengths)
        return self._parts

    @property
    def summary(self) -> Summary:
        """Sums of the rows; they are made once a design is complete or folds were asked for."""
        assert self._summary is not None
        return self._summary

    def _sum(self, n_groups: int, seed: int) -> Summary:
        """Moments of every group of rows by one tree reduction."""
        rows, centre = self._rows(lengths=False), self.options.fit_intercept
        tasks = _tasks(_chunk_sums_of_groups, rows, n_groups, seed, centre)
        found: _ChunkSums = compute(tree(tasks, _merge_sums_of_groups))[0]
        moments = [m for m in found.moments if m is not None]
        require_rows(sum(m.n_rows for m in moments), found.n_given, rows.kind)
        if len(moments) < n_groups:
            raise ValueError(
                f"the {rows.kind} has too few rows for {n_groups} groups (or folds) of them; use max_samples=1.0, or a "
                f"smaller number of folds."
            )

        def factor() -> list[Triangle]:
            tasks = _tasks(_chunk_triangles, rows, n_groups, seed, centre)
            triangles: list[Triangle] = compute(tree(tasks, _merge_triangles))[0]
            return triangles

        return Summary(moments, found.n_given, found.distinct, found.single, found.dtype, factor)


def _load(rows: RowParts, options: Options) -> Memory:
    """All rows, checked, on the client."""
    memory.require(8.0 * rows.n_rows * rows.n_columns, f"Loading the {rows.kind}", "Use a smaller max_features.")
    parts = [block for part in compute(*_tasks(_chunk_blocks, rows)) for block in part]
    X, y = (np.concatenate([getattr(block, name) for block in parts]) for name in ("X", "y"))
    weight = None if parts[0].weight is None else np.concatenate([block.weight for block in parts])
    require_rows(len(X) if weight is None else int(np.count_nonzero(weight)), len(X), rows.kind)
    return Memory.of(X.astype(parts[0].dtype), y[:, 0] if parts[0].single else y, weight, options)


def _chunk_blocks(X: Any, y: Any, weight: Any, place: Place) -> list[Checked]:
    blocks = list(_slices(X, y, weight, place))
    for block in blocks:
        if not (np.isfinite(block.X).all() and np.isfinite(block.y).all()):
            name_bad_rows(block)
    return blocks


def predict(X: Any, coef: Any, intercept: Any, who: str, names: Sequence[str] | None = None) -> Any:
    """Predictions as lazy as X; `names` are those of the columns of the fit."""
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2D, rows by columns.")
    own = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    check_columns(own, X.shape[1] if own is None else len(own), names, coef.shape[-1], who)
    _refuse_not_numbers(X, "X")
    X = X if own is None else X.to_dask_array()
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    shape = {"drop_axis": 1} if coef.ndim == 1 else {"chunks": (X.chunks[0], (coef.shape[0],))}
    return X.map_blocks(_predict_chunk, coef, intercept, dtype=coef.dtype, **shape)


def _predict_chunk(block: Any, coef: Any, intercept: Any) -> Any:
    return np.asarray(block) @ coef.T + intercept


Place = tuple[int, int, str]  # of a chunk: its number, that of its first row (-1: not known), what it is a chunk of


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or data frame."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


@dataclass(frozen=True)
class RowParts:
    """Rows on a cluster: one delayed (X, y, weight) for every chunk of rows, in order.

    Parameters
    ----------
    X, y, weight : list of Delayed
        Chunks; `weight` holds None where there are no weights.
    places : list of Place
        Where each chunk stands.
    n_rows : int
        Number of rows; -1 where it is not known.
    n_columns : int
        Number of columns.
    names : list of str or None
        Names of the columns.
    """

    X: list[Any]
    y: list[Any]
    weight: list[Any]
    places: list[Place]
    n_rows: int
    n_columns: int
    names: list[str] | None

    @property
    def kind(self) -> str:
        """What it is, for messages."""
        return self.places[0][2]


def row_parts(X: Any, y: Any, weight: Any, *, lengths: bool) -> RowParts:
    """Chunks of rows. Data frames tell the lengths of their partitions only when asked, for a pass over the data."""
    from dask.delayed import delayed

    names, kind = None, "Dask array"
    X, y, weight = _named_columns(X, y, weight)
    _refuse_not_numbers(X, "X")
    if hasattr(X, "columns"):
        names, kind = [str(name) for name in X.columns], "Dask data frame"
        lengths = lengths or any(_needs_cutting(a) for a in (y, weight))
        X = X.to_dask_array(lengths=True if lengths else None)
    elif np.isnan(np.asarray(X.shape, dtype=float)).any():
        raise ValueError(
            "X is a Dask array with unknown chunk sizes, so its rows cannot be counted. Call X.compute_chunk_sizes() "
            "first."
        )
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2D, rows by columns.")
    if y is None:
        raise ValueError("y is None: give the target as a Dask array or series with the rows of X.")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})  # a member needs whole rows
    rows = X.chunks[0]
    known = not np.isnan(rows).any()
    first = np.concatenate([[0], np.cumsum(rows)]).astype(int).tolist() if known else [-1] * (len(rows) + 1)
    chunks = list(X.to_delayed().ravel())
    targets = _beside(y, rows, "y")
    if _is_scalar(weight):
        fill = delayed(lambda X: np.full(X.shape[0], float(weight)), pure=False)
        weights = [fill(X) for X in chunks]
    else:
        weights = _beside(weight, rows, "sample_weight")
    places = [(number, start, kind) for number, start in enumerate(first[:-1])]
    return RowParts(chunks, targets, weights, places, first[-1], int(X.shape[1]), names)


def _named_columns(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    """X, y and weights, where y and weights may be names of columns of a data frame, which X is then without."""
    given = {"y": y, "sample_weight": weight}
    wanted = {role: names for role, value in given.items() if (names := named_columns(value))}
    if not wanted:
        return X, y, weight
    columns = list(X.columns) if hasattr(X, "columns") else None
    for role, names in wanted.items():
        for name in names:
            if columns is None:
                raise ValueError(f"{role}={name!r} names a column, but X is a Dask array, which has no names.")
            if name not in columns:
                shown = ", ".join(map(repr, columns[:8])) + (" ..." if len(columns) > 8 else "")
                raise ValueError(f"{role}={name!r} is no column of the Dask data frame; it has {shown}.")
    taken = [name for names in wanted.values() for name in names]
    if len(taken) == len(X.columns):
        raise ValueError(f"the Dask data frame has no columns left for X besides {', '.join(map(repr, taken))}.")
    y, weight = (X[v if isinstance(v, str) else list(v)] if role in wanted else v for role, v in given.items())
    return X.drop(columns=taken), y, weight


def _refuse_not_numbers(array: Any, name: str) -> None:
    """Refuse text, categories, dates and complex numbers, as far as types tell before anything is computed."""
    if array.ndim == 2 and hasattr(array, "columns"):
        text = [str(column) for column, dtype in array.dtypes.items() if not _is_number(dtype)]
        refuse_text(text, len(array.columns))
    elif not _is_number(array.dtype):
        raise ValueError(f"{name} is of type {array.dtype}; real numbers needed.")


def _is_number(dtype: Any) -> bool:
    """Real numbers, booleans, and objects, which are tried when they are read."""
    return dtype.kind in ("fiubO" if isinstance(dtype, np.dtype) else "fiub")  # texts and categories of pandas are O


def _is_scalar(given: Any) -> bool:
    return given is not None and not is_dask(given) and np.ndim(given) == 0


def _needs_cutting(given: Any) -> bool:
    """Whether y or weights are an array in memory, to be cut where partitions end."""
    return given is not None and not is_dask(given) and not _is_scalar(given)


def _beside(array: Any, rows: tuple[int, ...], name: str) -> list[Any]:
    """Chunks of y or weights, cut like the rows of X."""
    if array is None:
        return [None] * len(rows)
    import dask.array as da

    array = array if is_dask(array) else np.asarray(array)
    _refuse_not_numbers(array, name)
    if array.ndim == 0 or array.ndim > (2 if name == "y" else 1):
        raise ValueError(
            f"{name} has {array.ndim} dimensions, shape {tuple(array.shape)}; expected one number for each row"
            f"{', or one column for each target' if name == 'y' else ''}."
        )
    if hasattr(array, "to_dask_array"):
        array = array.to_dask_array(lengths=None if np.isnan(rows).any() else True)
    if not isinstance(array, da.Array):
        from_array: Callable[..., Any] = da.from_array  # without types of its own, as `compute` below
        array = from_array(array, chunks=-1)
    if not np.isnan(rows).any():
        if array.shape[0] != sum(rows):
            raise ValueError(f"{name} has {array.shape[0]} rows, but X has {sum(rows)}.")
        array = array.rechunk({0: rows, **({1: -1} if array.ndim > 1 else {})})
    if array.numblocks[0] != len(rows):
        raise ValueError(f"{name} has {array.numblocks[0]} partitions, but X has {len(rows)}; they must match.")
    return list(array.to_delayed().ravel())


def tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """One delayed value from many, merged in their order, eight at a time: workers do not change the result."""
    from dask.delayed import delayed

    join = delayed(merge, pure=False)
    while len(parts) > 1:
        parts = [join(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    return parts[0]


def compute(*values: Any) -> tuple[Any, ...]:
    """Values of delayed objects: on the user's cluster where there is a client, on local threads otherwise."""
    from dask import base

    run: Callable[..., tuple[Any, ...]] = base.compute
    return run(*values)


def _chunk_errors(
    X: Any, y: Any, weight: Any, place: Place, fits: list[FoldFit], seed: int, n_rows: int, most: int
) -> list[Array]:
    errors: list[list[Array]] = [[np.zeros((0, len(fit.coef)))] for fit in fits]
    for block in _slices(X, y, weight, place):
        for g, residual in fold_errors(block, fits, seed, n_rows, most):
            errors[g].append(residual)
    return [np.concatenate(own) for own in errors]


def _join_errors(parts: list[list[Array]]) -> list[Array]:
    return [np.concatenate(own) for own in zip(*parts, strict=True)]


class _ChunkSums(NamedTuple):
    """Of one chunk, or of several merged."""

    moments: list[Moments | None]  # None for groups without rows
    n_given: int
    distinct: DistinctRows
    single: bool
    dtype: Any


def _tasks(function: Callable[..., Any], rows: RowParts, *arguments: Any) -> list[Any]:
    from dask.delayed import delayed

    work = delayed(function, pure=False)
    places = zip(rows.X, rows.y, rows.weight, rows.places, strict=True)
    return [work(X, y, w, place, *arguments) for X, y, w, place in places]


def _slices(X: Any, y: Any, weight: Any, place: Place) -> Iterator[Checked]:
    """A chunk as blocks small enough to be copied in float64."""
    number, first, kind = place
    X = _numbers(X.toarray() if hasattr(X, "toarray") else np.asarray(X), "X", number, kind)
    y = _numbers(np.asarray(y), "y", number, kind)
    weight = None if weight is None else np.asarray(weight, dtype=np.float64)
    for name, beside in (("y", y), ("sample_weight", weight)):
        if beside is not None and len(beside) != len(X):
            raise ValueError(f"chunk {number} has {len(X)} rows of X and {len(beside)} of {name}.")
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    rows = max(1, BLOCK_BYTES // (8 * X.shape[1]))
    for start in range(0, max(1, len(X)), rows):
        here = slice(start, start + rows)
        w = None if weight is None else weight[here]
        Y = y[here].reshape(len(y[here]), 1 if y.ndim == 1 else y.shape[1])
        block = Checked(
            X[here], Y, w, number, max(first, 0) + start, y.ndim == 1, dtype, kind=kind, local=first < 0
        )  # fmt: skip
        check_weights(block)
        yield block


def _numbers(array: Any, name: str, number: int, kind: str) -> Any:
    """Real numbers; objects are tried, as in memory."""
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} of chunk {number} of the {kind} does not hold numbers ({error}).") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} of chunk {number} of the {kind} is of type {array.dtype}; real numbers needed.")
    return array


def _positive(block: Checked) -> Any:
    return block.X if block.weight is None else block.X[block.weight > 0]


def _chunk_sums_of_groups(
    X: Any, y: Any, weight: Any, place: Place, n_groups: int, seed: int, centre: bool
) -> _ChunkSums:
    found: list[Accumulator] = []
    distinct = DistinctRows.of_columns(X.shape[1])
    for block in _slices(X, y, weight, place):
        found = found or [Accumulator(block.X.shape[1], block.y.shape[1], centre) for _ in range(n_groups)]
        distinct = distinct.add(_positive(block))
        for g, part, target, w in split_rows(block, n_groups, seed):
            add_rows(found[g], part, target, w)
            if not found[g].finite():
                name_bad_rows(block)
    moments = [a.moments() if a.n_rows else None for a in found]
    return _ChunkSums(moments, X.shape[0], distinct, block.single, block.dtype)


def _merge_sums_of_groups(parts: list[_ChunkSums]) -> _ChunkSums:
    moments, n_given, distinct, single, dtype = parts[0]
    for other in parts[1:]:
        pairs = zip(moments, other.moments, strict=True)
        moments = [b if a is None else a if b is None else a.merge(b) for a, b in pairs]
        n_given, distinct = n_given + other.n_given, distinct.merge(other.distinct)
    return _ChunkSums(moments, n_given, distinct, single, dtype)


def _chunk_triangles(
    X: Any, y: Any, weight: Any, place: Place, n_groups: int, seed: int, centre: bool
) -> list[Triangle]:
    out: list[Triangle] = []
    for block in _slices(X, y, weight, place):
        out = out or [Triangle.empty(block.X.shape[1], block.y.shape[1]) for _ in range(n_groups)]
        for g, part, target, w in split_rows(block, n_groups, seed):
            out[g] = out[g].add(part, target, w, centre)
    return out


def _merge_triangles(parts: list[list[Triangle]]) -> list[Triangle]:
    out = parts[0]
    for other in parts[1:]:
        out = [a.join(b) for a, b in zip(out, other, strict=True)]
    return out
