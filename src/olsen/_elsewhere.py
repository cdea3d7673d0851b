"""Fits and predictions where the arrays are: torch, cupy and other libraries of the array API, on their own device.

Everything follows X, as in scikit-learn: with ``sklearn.config_context(array_api_dispatch=True)`` coefficients and
predictions come back in the namespace and on the device of X, sums are taken in float64 where the device has it, and
the results are rounded to the type of X.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from . import _members
from ._execution import pools
from ._execution.arrays import Space, out_of_memory, space_of
from ._execution.blocks import row_groups
from ._execution.memory import describe
from ._inputs import resolve_seed, warn_at_the_peak
from ._members import on_device

__all__ = [
    "fit",
    "fit_problem",
    "fold_moments",
    "lives_elsewhere",
    "predict",
    "refuse_warm_start",
    "remember_design",
    "set_attributes",
    "validate",
]


def lives_elsewhere(*arrays) -> bool:
    """Whether any of these is an array of another library that scikit-learn was told to follow."""
    return any(array is not None and hasattr(array, "shape") and space_of(array) is not None for array in arrays)


def fit(estimator, X, y, sample_weight) -> None:
    """Set the fitted attributes of an ensemble from arrays on a device."""
    _refuse_parameters(estimator)
    problem, single, _ = validate(estimator, X, y, sample_weight)
    fit_problem(estimator, problem, single, remember_design(estimator, *problem.shape), estimator.n_estimators)


def fit_problem(estimator, problem: _members.Problem, single: bool, design: dict, k: int) -> None:
    """The same for `k` members of a given design."""
    space = problem.space
    estimator.n_features_in_ = problem.shape[1]
    estimator._kept_rows, estimator._design = None, design
    features, samples = estimator._draw(0, k)
    if estimator.sampling == "fixed":
        rows = problem.shape[0] if samples is None else int(samples.sizes[0])
        warn_at_the_peak(int(features.sizes[0]), rows, estimator.fit_intercept)
    with _memory_named(problem):
        total = on_device.solve_sum(problem, features, samples, estimator.solver, _threads(estimator))
    set_attributes(estimator, features, total.solver, total.refitted)
    mu = estimator.scale_
    coef = space.xp.astype((mu / k) * total.coef.T, problem.X.dtype)
    intercept = space.xp.astype((mu * total.intercept + (1 - mu) * total.mean_y) / k, problem.X.dtype)
    estimator.coef_ = coef[0, :] if single else coef
    estimator.intercept_ = (intercept[0] if single else intercept) if estimator.fit_intercept else 0.0
    for name in ("_training", "_deletions", "_triangle", "feature_names_in_"):
        estimator.__dict__.pop(name, None)


def _threads(estimator):
    """The host's threads, for what members need of it."""
    return partial(pools.map_chunks, n_threads=pools.count_threads(estimator.n_jobs), uses_blas=False)


@contextmanager
def _memory_named(problem):
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


def fold_moments(problem: _members.Problem, kept: NDArray | None, n_given: int, n_folds: int, seed: int) -> list:
    """Moments on the host of random folds of rows, made on the device; rows fall where they would in blocks."""
    fold = row_groups(0, n_given, n_folds, seed)
    fold = fold if kept is None else fold[kept]
    rows = [np.flatnonzero(fold == f) for f in range(n_folds)]
    if min(map(len, rows)) == 0:
        raise ValueError(
            f"{len(fold)} rows are too few for {n_folds} folds of random rows; set cv to a smaller number."
        )
    with _memory_named(problem):
        return [_on_host(_take(problem, problem.space.put(own)).moments, problem.space) for own in rows]


def _take(problem, rows):
    parts = {name: getattr(problem, name) for name in ("X", "Y", "weight")}
    take = problem.space.xp.take
    return replace(problem, **{name: None if a is None else take(a, rows, axis=0) for name, a in parts.items()})


def _on_host(moments, space):
    names = ("mean_x", "mean_y", "G", "C", "yy")
    return replace(moments, **{name: space.get(getattr(moments, name)).astype(np.float64) for name in names})


def predict(estimator, X):
    """Predictions in the namespace and on the device of X, which must be those of the fit."""
    space = _same_space({"coef_": estimator.coef_, "X": X})
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            f"features as input."
        )
    _refuse_nonfinite(X, "X", space)
    coef = estimator.coef_
    return X @ (coef if coef.ndim == 1 else coef.T) + estimator.intercept_


def remember_design(estimator, n_rows: int, n_columns: int, size=None) -> dict:
    """How members are drawn: the arguments of :func:`olsen.subsets.draw_members`."""
    size = estimator.max_features if size is None else size
    return {
        "n_rows": n_rows,
        "n_columns": n_columns,
        "seed": resolve_seed(estimator.random_state),
        "max_features": np.array(size) if np.ndim(size) else size,
        "max_samples": estimator.max_samples,
        "sampling": estimator.sampling,
        "design": estimator.design,
        "fit_intercept": estimator.fit_intercept,
        "distinct_rows": None,
    }


def set_attributes(estimator, features, solver: str, refitted: int) -> None:
    """Everything about the members but their coefficients; a scale that was to be estimated is one."""
    k = len(features)
    estimator.scale_ = 1.0 if estimator.scale == "loo" else float(estimator.scale)
    estimator.n_estimators_, estimator.n_fallbacks_ = k, refitted
    estimator.weights_, estimator.inclusion_ = np.full(k, 1 / k), features.counts(_threads(estimator)) / k
    estimator.solver_ = solver


def _refuse_parameters(estimator):
    if estimator.scale == "loo" or estimator.mixing != "mean":
        raise ValueError(
            f"scale={estimator.scale!r} with mixing={estimator.mixing!r} needs leave-one-out residuals, which are not "
            f"computed on other devices. Use a number and mixing='mean', or move the data to the host."
        )
    refuse_warm_start(estimator)


def refuse_warm_start(estimator) -> None:
    """Say that members on a device are not kept."""
    if estimator.warm_start:
        raise ValueError("warm_start=True needs data on the host; members on a device are always fitted anew.")


def validate(estimator, X, y, sample_weight) -> tuple[_members.Problem, bool, NDArray | None]:
    """The problem on the device of X, whether y was a vector, and the rows of positive weight where some have none."""
    space = _same_space({"X": X, "y": y, "sample_weight": sample_weight})
    xp = space.xp
    if X.ndim != 2 or X.shape[0] < 2 or X.shape[1] < 1:
        raise ValueError(f"X has shape {tuple(X.shape)}; expected 2D with at least two rows and one column.")
    if y.ndim not in (1, 2) or y.shape[0] != X.shape[0]:
        raise ValueError(f"y has shape {tuple(y.shape)} but X has {X.shape[0]} rows; every row needs its target.")
    if not xp.isdtype(X.dtype, "real floating"):
        X = xp.astype(X, space.dtype)
    for array, name in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
        if array is not None:
            _refuse_nonfinite(array, name, space)
    Y = space.cast(y)
    weight, given_rows = None if sample_weight is None else space.cast(sample_weight), None
    if weight is not None:
        if bool(xp.any(weight < 0)):
            raise ValueError("sample_weight holds negative numbers; weights must be at least zero.")
        kept = xp.nonzero(weight > 0)[0]  # a weight of zero equals a dropped row, before anything is drawn
        if kept.shape[0] < X.shape[0]:
            X, Y, weight = (xp.take(a, kept, axis=0) for a in (X, Y, weight))
            given_rows = space.get(kept)
    Y = Y[:, None] if Y.ndim == 1 else Y
    problem = _members.Problem(X, Y, weight, estimator.fit_intercept, estimator.rcond, estimator.tol, space)
    return problem, y.ndim == 1, given_rows


def _same_space(named) -> Space:
    """The one place where all arrays live."""
    spaces = {name: space_of(a) for name, a in named.items() if a is not None}
    places = {name: "host (NumPy)" if s is None else f"{s.name} on {s.device}" for name, s in spaces.items()}
    if len(set(places.values())) > 1:
        where = ", ".join(f"{name} is {place}" for name, place in places.items())
        raise ValueError(f"arrays live in different places: {where}. Move them to one namespace and device.")
    return next(space for space in spaces.values() if space is not None)


def _refuse_nonfinite(array, name, space):
    if space.xp.isdtype(array.dtype, "real floating") and not bool(space.xp.all(space.xp.isfinite(array))):
        raise ValueError(f"{name} contains NaN or infinity on {space.device}; impute or drop those rows first.")
