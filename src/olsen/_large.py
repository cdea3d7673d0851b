"""The one door for data that are not an array in memory: on a device, in blocks, on a cluster."""

from __future__ import annotations

from . import _blockwise, _distributed, _elsewhere
from ._execution import blocks, cluster

__all__ = ["predicts", "takes"]


def takes(estimator, X, y, sample_weight) -> bool:
    """Fit the estimator if X lives somewhere else than in memory; False where it does not."""
    if _elsewhere.lives_elsewhere(X, y):
        _elsewhere.fit(estimator, X, y, sample_weight)
        return True
    if cluster.is_dask(X):
        _distributed.fit(estimator, X, y, sample_weight)
        return True
    source = blocks.open_source(X, y, sample_weight)
    if source is not None:
        _blockwise.fit(estimator, source)
    return source is not None


def predicts(estimator, X):
    """Predictions where X is, or None where X is an ordinary array."""
    if _elsewhere.lives_elsewhere(X, estimator.coef_):
        return _elsewhere.predict(estimator, X)
    return _distributed.predict(estimator, X) if cluster.is_dask(X) else None
