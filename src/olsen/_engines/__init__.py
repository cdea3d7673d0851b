"""Where the data are. One door, :func:`engine_of`; behind it engines that answer the same few questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import dask, device, sources
from .blocks import Blocks
from .dask import Dask, is_dask
from .determinantal import limit_of, process_of
from .device import Device, lives_elsewhere
from .engine import Engine, NeedsRows, Options, nobody
from .memory import Memory
from .stream import Stream
from .summed import Summed

__all__ = [
    "Blocks",
    "Checks",
    "Dask",
    "Device",
    "Engine",
    "Memory",
    "NeedsRows",
    "Options",
    "Stream",
    "Summed",
    "engine_of",
    "is_dask",
    "limit_of",
    "lives_elsewhere",
    "nobody",
    "predict",
    "process_of",
]

Checks = Callable[[Any, Any, Any], tuple[Any, Any, Any]]


def engine_of(X: Any, y: Any, sample_weight: Any, options: Options, checks: Checks, *, min_rows: int = 2) -> Engine:
    """The engine for these data; ``checks(X, y, sample_weight)`` makes arrays of what is to be held in memory.

    ==========================================================  ==================
    X                                                           engine
    ==========================================================  ==================
    Dask array or data frame                                    Dask
    array of another library, if scikit-learn follows those     Device
    path, large memory map, zarr, blocks (see ``sources``)      Blocks
    array, sparse matrix or data frame                          Memory
    an engine                                                   itself
    ==========================================================  ==================
    """
    if type(X) is np.ndarray and type(y) is np.ndarray:  # the usual case first
        return Memory.of(*checks(X, y, sample_weight), options, min_rows)
    if isinstance(X, (Blocks, Dask, Device, Memory)):
        return X
    if is_dask(X):  # first: Dask arrays follow the array API too
        return Dask(X, y, sample_weight, options)
    if lives_elsewhere(X, y):
        return Device.of(X, y, sample_weight, options)
    source = sources.open_source(X, y, sample_weight)
    if source is not None:
        return Blocks(source, options)
    return Memory.of(*checks(X, y, sample_weight), options, min_rows)


def predict(X: Any, coef: Any, intercept: Any, who: str, names: Sequence[str] | None = None) -> Any | None:
    """Predictions where X is; None for ordinary arrays, which scikit-learn checks first.

    `names` are those of the columns of the fit, where they are known.
    """
    if is_dask(X):
        device.refuse_unfollowed(X, coef)
        return dask.predict(X, coef, intercept, who, names)
    if lives_elsewhere(X, coef):
        return device.predict(X, coef, intercept, who)
    device.refuse_unfollowed(X, coef)
    return None
