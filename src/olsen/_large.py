"""The one door for data that are not an array in memory: on a device, in blocks, on a cluster."""

from __future__ import annotations

from functools import partial

from . import _blockwise, _distributed, _elsewhere, _moment_selection
from ._execution import blocks, cluster
from ._moments import Moments

__all__ = ["predicts", "takes", "tune_blocks", "tunes"]


def takes(estimator, X, y, sample_weight) -> bool:
    """Fit the estimator if X lives somewhere else than in memory; False where it does not."""
    if cluster.is_dask(X):  # first: Dask arrays follow the array API too
        _distributed.fit(estimator, X, y, sample_weight)
        return True
    if _elsewhere.lives_elsewhere(X, y):
        _elsewhere.fit(estimator, X, y, sample_weight)
        return True
    source = blocks.open_source(X, y, sample_weight)
    if source is not None:
        _blockwise.fit(estimator, source)
    return source is not None


def tunes(estimator, X, y, sample_weight) -> bool:
    """The same for an estimator that chooses its size: by k-fold cross-validation from moments of folds."""
    if not cluster.is_dask(X) and _elsewhere.lives_elsewhere(X, y):
        _tune_elsewhere(estimator, X, y, sample_weight)
        return True
    if cluster.is_dask(X):
        parts = partial(cluster.row_parts, X, y, sample_weight, lengths=True)
        _tune(estimator, lambda folds, seed: _distributed.summarise(estimator, parts(), folds, seed))
        return True
    source = blocks.open_source(X, y, sample_weight)
    if source is not None:
        tune_blocks(estimator, source)
    return source is not None


def tune_blocks(estimator, source: blocks.BlockSource) -> list[Moments]:
    """Tune and fit an OLSEnsembleRegressorCV on blocks; the moments of the folds that decided."""
    return _tune(estimator, partial(_blockwise.summarise, estimator, source))


def _tune(estimator, summarise):
    folds = _refuse_other_tuning(estimator)
    seed = _elsewhere.remember_design(estimator, 0, 0, 1)["seed"]
    summary = summarise(folds, seed)
    size, k = _moment_selection.tune(estimator, summary.parts, seed)
    design = _elsewhere.remember_design(estimator, 0, 0, size) | {"seed": seed}
    _blockwise.fit_summary(estimator, summary, design, k=k)
    return summary.parts


def _tune_elsewhere(estimator, X, y, sample_weight):
    """Folds are summed on the device, sizes compared on the host, and members fitted on the device."""
    _elsewhere.refuse_warm_start(estimator)
    n_folds = _refuse_other_tuning(estimator)
    seed = _elsewhere.remember_design(estimator, 0, 0, 1)["seed"]
    problem, single, kept = _elsewhere.validate(estimator, X, y, sample_weight)
    folds = _elsewhere.fold_moments(problem, kept, X.shape[0], n_folds, seed)
    size, k = _moment_selection.tune(estimator, folds, seed)
    design = _elsewhere.remember_design(estimator, *problem.shape, size) | {"seed": seed}
    _elsewhere.fit_problem(estimator, problem, single, design, k)


def _refuse_other_tuning(estimator) -> int:
    """Number of folds, or an error for what needs every row."""
    asked = {"tune": "max_features", "max_samples": 1.0, "mixing": "mean"}
    for name, value in asked.items():
        if getattr(estimator, name) != value:
            raise ValueError(
                f"{name}={getattr(estimator, name)!r} needs every row again; with X in blocks, on a cluster or on a "
                f"device only {name}={value!r} is there."
            )
    if estimator.inclusion not in ("uniform", "loo"):
        raise ValueError(f"inclusion={estimator.inclusion!r} needs every row; use 'uniform', or an array in memory.")
    if estimator.cv is None or estimator.cv == "gcv":
        return _moment_selection.FOLDS
    if isinstance(estimator.cv, int) and estimator.cv >= 2:
        return estimator.cv
    raise ValueError(
        f"cv={estimator.cv!r} cannot be used with X in blocks, on a cluster or on a device: None means 5-fold there, "
        f"an int that many folds of random rows, 'gcv' generalised cross-validation."
    )


def predicts(estimator, X):
    """Predictions where X is, or None where X is an ordinary array."""
    if cluster.is_dask(X):
        return _distributed.predict(estimator, X)
    return _elsewhere.predict(estimator, X) if _elsewhere.lives_elsewhere(X, estimator.coef_) else None
