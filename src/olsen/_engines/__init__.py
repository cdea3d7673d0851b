"""Engines, which hold the training data and solve members; :func:`engine_of` chooses the engine for
the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._data import sources
from .._execution import from_extra
from .._execution.memory import require
from .._execution.options import Options
from . import dask, device
from .blocks import Blocks
from .dask import DaskRows, is_dask
from .device import Device, lives_elsewhere
from .engine import Engine
from .memory import Memory

Checks = Callable[..., tuple[Any, Any, Any]]


def engine_of(
    X: Any, y: Any, sample_weight: Any, options: Options, checks: Checks, *, min_rows: int = 2
) -> Engine:
    """Engine for the data; ``checks(X, y, sample_weight)`` converts data that are held in memory to
    arrays.

    ==========================================================  ==================
    X                                                           engine
    ==========================================================  ==================
    Dask array or data frame, more rows than columns            Blocks
    array of another library, if scikit-learn dispatches on it  Device
    path, large memory map, blocks (see ``sources``)            Blocks
    array, sparse matrix or data frame                          Memory
    an engine                                                   itself
    ==========================================================  ==================
    """
    if type(X) is np.ndarray and type(y) is np.ndarray:  # the usual case takes no further tests
        return Memory.of(*checks(X, y, sample_weight), options, min_rows)
    if isinstance(X, (Blocks, Device, Memory)):
        return X
    if is_dask(X):  # first: Dask arrays follow the array API too
        rows = DaskRows.of(X, y, sample_weight)
        if rows.n_rows > rows.X.shape[1]:
            return Blocks(rows, options)
        require(
            8.0 * rows.n_rows * rows.X.shape[1], f"Loading the {rows.kind}", "Use fewer columns."
        )
        X, y, sample_weight = dask.compute(rows.X, rows.y, rows.weight)
        if rows.names:
            X = from_extra("pandas", "dask", "A Dask data frame").DataFrame(X, columns=rows.names)
    elif lives_elsewhere(X, y):
        return Device.of(X, y, sample_weight, options)
    elif (source := sources.open_source(X, y, sample_weight)) is not None:
        return Blocks(source, options)
    return Memory.of(*checks(X, y, sample_weight), options, min_rows)


def predict(X: Any, coef: Any, intercept: Any, check: Callable[[Any], Any]) -> Any | None:
    """Predictions on the device or cluster of X, after a check of its columns; None for ordinary
    arrays.
    """
    if not is_dask(X) and lives_elsewhere(X, coef):
        return device.predict(X, coef, intercept, check)
    device.refuse_unfollowed(X, coef)
    return dask.predict(X, coef, intercept, check) if is_dask(X) else None
