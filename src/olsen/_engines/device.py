"""Arrays of torch, cupy and other libraries of the array API, on their own device.

Everything follows X, as in scikit-learn: with ``sklearn.config_context(array_api_dispatch=True)`` coefficients and
predictions come back in the namespace and on the device of X, sums are taken in float64 where the device has it, and
the results are rounded to the type of X.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space, out_of_memory, space_of
from .._execution.memory import describe
from .._members import Members, Problem, on_device
from .._members.problem import Units
from .._moments import DistinctRows, Moments
from .._trust import refuse_extremes
from ..subsets import Design, Subsets, row_groups
from ..subsets._on_device import draw_on_device
from .determinantal import limit_of
from .engine import Options, nobody
from .left_out import FoldFit, LeftOutFits, Refit, fold_design, residuals
from .sources import require_positive

__all__ = ["Device", "lives_elsewhere", "predict", "refuse_unfollowed"]

COPIES = 8  # of the folds' Gram matrices, about, that comparing sizes takes


def lives_elsewhere(*arrays: Any) -> bool:
    """Whether any of these is an array of another library that scikit-learn was told to follow."""
    return any(array is not None and hasattr(array, "shape") and space_of(array) is not None for array in arrays)


@dataclass(frozen=True)
class Device:
    """Checked arrays on a device."""

    rows: Problem
    options: Options
    single_target: bool
    n_given: int
    kept_rows: NDArray[np.int64] | None  # positions of the rows with positive weight; None: all
    names: list[str] | None = None
    arrays: bool = False
    problem: Problem | None = None  # leave-one-out runs on the host only
    why_no_rows: str = "leave-one-out is not computed on other devices; move X and y to the host as NumPy arrays"

    @classmethod
    def of(cls, X: Any, y: Any, sample_weight: Any, options: Options) -> Device:
        """Check arrays and drop rows of weight zero."""
        space = _same_space({"X": X, "y": y, "sample_weight": sample_weight})
        X, y, sample_weight = (_plain(a) for a in (X, y, sample_weight))
        n = X.shape[0]
        X, Y, weight = _checked(X, y, sample_weight, space)
        X, Y, weight, kept = _drop_weightless(X, Y, weight, space)
        problem = Problem(X, Y, weight, options.fit_intercept, options.rcond, options.tol, space)
        return cls(problem, options, y.ndim == 1, n, kept)

    @property
    def n_columns(self) -> int:
        return self.rows.shape[1]

    @property
    def dtype(self) -> Any:
        return self.rows.X.dtype

    def complete(self, design: Design) -> Design:
        n, p = self.rows.shape
        distinct = self._distinct() if design.sampling == "bernoulli" else None
        return replace(
            design, n_rows=n, n_columns=p, distinct_rows=distinct, n_given=self.n_given, kept_rows=self.kept_rows
        )

    def _distinct(self) -> int:
        """Different rows, counted on the host as far as they matter: mostly the first few are enough."""
        n, p = self.rows.shape
        found = DistinctRows.of_columns(p)
        step = found.enough
        for start in range(0, n, step):
            if len(found) < found.enough:
                found = found.add(self.rows.space.get(self.rows.X[start : min(start + step, n), :]))
        return len(found)

    def solve(self, design: Design, start: int, stop: float, weights: NDArray[np.float64] | None = None) -> Members:
        if stop == np.inf:
            return self._on_device(limit_of(self, design))
        stop = int(stop)
        on_host = self.options.quietly
        drawn = draw_on_device(design, start, stop, self.rows.space)
        features, samples = design.draw(start, stop, on_host.without_blas) if drawn is None else drawn
        k = len(features)
        rows, units = self.rows.in_units
        with _memory_named(rows):
            total = on_device.solve_sum(rows, features, samples, self.options.solver, on_host)
        coef = total.coef / k
        if units != Units():
            coef = rows.space.put(units.coefficients(rows.space.get(coef)))
        return Members(
            coef,
            total.intercept / k * units.y,
            total.mean_y / k * units.y,
            features.counts(on_host.without_blas) if isinstance(features, Subsets) else features.counts(),
            np.full(k, 1 / k),
            "masked_cg" if self.options.solver == "auto" else self.options.solver,
            total.refitted,
            self.rows.space,
        )

    def _on_device(self, found: Members) -> Members:
        put = self.rows.space.put
        return replace(
            found, coef=put(found.coef), intercept=put(found.intercept), mean_y=put(found.mean_y), space=self.rows.space
        )

    def again(self) -> Device:
        return replace(self, options=replace(self.options, listen=nobody))

    def sums(self) -> Moments:
        refuse_extremes(self.rows.largest_entries)
        return self.rows.moments.on_host()

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        fold = self._folds_of_rows(count, seed)
        fits = [self._fold_fit(np.flatnonzero(fold != f), np.flatnonzero(fold == f), refit) for f in range(count)]
        return LeftOutFits(self.solve(refit.design, 0, refit.number), fits)

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        fold = self._folds_of_rows(len(fits), seed)
        get, found = self.rows.space.get, []
        for f, fit in enumerate(fits):
            part = _take(self.rows, np.flatnonzero(fold == f))
            found.append(fit._replace(residual=residuals(fit, get(part.X), get(part.Y))))
        return found

    def _folds_of_rows(self, count: int, seed: int) -> NDArray[np.uint64]:
        fold = row_groups(0, self.n_given, count, seed)
        return fold if self.kept_rows is None else fold[self.kept_rows]

    def _fold_fit(self, train: NDArray[np.int64], test: NDArray[np.int64], refit: Refit) -> FoldFit:
        part = replace(self, rows=_take(self.rows, train), kept_rows=None, n_given=len(train))
        members = part.solve(fold_design(refit, len(train)), 0, refit.number)
        fit, left, get = (
            FoldFit.of(members, refit.scale, self.rows.Y.shape[1]),
            _take(self.rows, test),
            self.rows.space.get,
        )
        coef, intercept = members.scaled(refit.scale, self.rows.X.dtype)
        off = self.rows.space.cast(left.Y) - self.rows.space.cast(left.X @ coef.T + intercept)
        return fit._replace(residual=np.asarray(get(off), dtype=float))

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Made on the device, and left there if there is room; rows fall where they would in blocks."""
        refuse_extremes(self.rows.largest_entries)
        fold = self._folds_of_rows(count, seed)
        rows = [np.flatnonzero(fold == f) for f in range(count)]
        if min(map(len, rows)) == 0:
            raise ValueError(
                f"{len(fold)} rows are too few for {count} folds of random rows; set cv to a smaller number."
            )
        space = self.rows.space
        # Cholesky factors ask for double precision, which not every device has
        stay = space.dtype == space.xp.float64
        stay &= 8.0 * self.n_columns**2 * count * COPIES < space.batch_bytes(np.inf)
        with _memory_named(self.rows):
            made = (_take(self.rows, own).moments for own in rows)
            return [moments if stay else moments.on_host() for moments in made]


@contextmanager
def _memory_named(problem: Problem) -> Iterator[None]:
    """Whatever error a library raises when its device runs out of memory, in words."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or not out_of_memory(error):
            raise
        n, p = problem.shape
        raise MemoryError(
            f"{problem.space.device} ran out of memory with X of {n} x {p} ({error}). A Gram matrix takes "
            f"{describe(8.0 * p * p)} there, and rows are summed in blocks of {describe(2.0**31)}. Free some memory, "
            f"take fewer columns, or move X to the host."
        ) from error


def _take(problem: Problem, rows: NDArray[np.int64]) -> Problem:
    take, places = problem.space.xp.take, problem.space.put(rows)
    X, Y = (take(a, places, axis=0) for a in (problem.X, problem.Y))
    return replace(problem, X=X, Y=Y, weight=None if problem.weight is None else take(problem.weight, places, axis=0))


def predict(X: Any, coef: Any, intercept: Any, who: str) -> Any:
    """Predictions in the namespace and on the device of X, which must be those of the fit."""
    space = _same_space({"coef_": coef, "X": X})
    if X.ndim != 2 or X.shape[1] != coef.shape[-1]:
        raise ValueError(f"X has shape {tuple(X.shape)}, but {who} is expecting {coef.shape[-1]} features as input.")
    X = _as_coef(X, coef, space)
    _refuse_nonfinite(X, "X", space)
    return X @ (coef if coef.ndim == 1 else coef.T) + intercept


def _as_coef(X: Any, coef: Any, space: Space) -> Any:
    """X in the type of the coefficients: libraries multiply arrays of one type only."""
    if space.xp.isdtype(X.dtype, "complex floating"):
        raise ValueError(f"X is of type {X.dtype}; real numbers needed.")
    return X if X.dtype == coef.dtype else space.xp.astype(X, coef.dtype)


def refuse_unfollowed(X: Any, coef: Any) -> None:
    """Coefficients that live in another library, while scikit-learn is not told to follow it."""
    if isinstance(coef, np.ndarray):
        return
    library, device = type(coef).__module__.split(".")[0], getattr(coef, "device", "cpu")
    raise ValueError(
        f"coef_ is an array of {library} on {device}, but X is of type {type(X).__name__} and scikit-learn's "
        f"array_api_dispatch is off. Predict arrays of {library} on {device} within "
        f"sklearn.config_context(array_api_dispatch=True), or fit on NumPy arrays."
    )


def _plain(array: Any) -> Any:
    """A dense array without a record of derivatives, which torch would keep with the coefficients."""
    if "sparse" in str(getattr(array, "layout", "")):
        raise ValueError(
            "X is a sparse tensor, which is not supported; densify it (X.to_dense()), or give a scipy.sparse matrix."
        )
    return array.detach() if hasattr(array, "detach") else array


def _checked(X: Any, y: Any, sample_weight: Any, space: Space) -> tuple[Any, Any, Any]:
    """X of floats, Y (n, q) and weights in the working type, or an error."""
    if X.ndim != 2 or X.shape[0] < 2 or X.shape[1] < 1:
        raise ValueError(f"X has shape {tuple(X.shape)}; expected 2D with at least two rows and one column.")
    if y.ndim not in (1, 2) or y.shape[0] != X.shape[0]:
        raise ValueError(f"y has shape {tuple(y.shape)} but X has {X.shape[0]} rows; every row needs its target.")
    if sample_weight is not None and tuple(sample_weight.shape) != (X.shape[0],):
        raise ValueError(
            f"sample_weight has shape {tuple(sample_weight.shape)}, but X has {X.shape[0]} rows; expected "
            f"({X.shape[0]},)."
        )
    named = {name: a for name, a in (("X", X), ("y", y), ("sample_weight", sample_weight)) if a is not None}
    for name, array in named.items():
        if space.xp.isdtype(array.dtype, "complex floating"):
            raise ValueError(f"{name} is of type {array.dtype}; real numbers needed.")
    if not space.xp.isdtype(X.dtype, "real floating"):
        X = space.xp.astype(X, space.dtype)
    for array, name in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
        if array is not None:
            _refuse_nonfinite(array, name, space)
    Y = space.cast(y)
    return X, Y[:, None] if Y.ndim == 1 else Y, None if sample_weight is None else space.cast(sample_weight)


def _drop_weightless(X: Any, Y: Any, weight: Any, space: Space) -> tuple[Any, Any, Any, NDArray[np.int64] | None]:
    """A weight of zero equals a dropped row, before anything is drawn."""
    if weight is None:
        return X, Y, None, None
    if bool(space.xp.any(weight < 0)):
        raise ValueError("sample_weight holds negative numbers; weights must be at least zero.")
    kept = space.xp.nonzero(weight > 0)[0]
    require_positive(kept.shape[0], X.shape[0])
    if kept.shape[0] == X.shape[0]:
        return X, Y, weight, None
    X, Y, weight = (space.xp.take(a, kept, axis=0) for a in (X, Y, weight))
    return X, Y, weight, space.get(kept)


def _same_space(named: dict[str, Any]) -> Space:
    """The one place where all arrays live."""
    spaces = {name: space_of(a) for name, a in named.items() if a is not None}
    places = {name: "host (NumPy)" if s is None else f"{s.name} on {s.device}" for name, s in spaces.items()}
    if len(set(places.values())) > 1:
        where = ", ".join(f"{name} is {place}" for name, place in places.items())
        raise ValueError(f"arrays live in different places: {where}. Move them to one namespace and device.")
    return next(space for space in spaces.values() if space is not None)


def _refuse_nonfinite(array: Any, name: str, space: Space) -> None:
    if space.xp.isdtype(array.dtype, "real floating") and not bool(space.xp.all(space.xp.isfinite(array))):
        raise ValueError(f"{name} contains NaN or infinity on {space.device}; impute or drop those rows first.")
