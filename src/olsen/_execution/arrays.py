"""Where arrays live: namespace, device and working precision, taken from the data and never from a global."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _array_api

__all__ = ["HOST", "Space", "space_of"]


@dataclass(frozen=True)
class Space:
    """A namespace on a device, with the floating type that sums are taken in."""

    xp: Any
    device: Any
    dtype: Any

    @property
    def on_host(self) -> bool:
        """Whether these are NumPy arrays (or what scipy makes of them)."""
        return self.xp is np

    def batch_bytes(self, on_host: float) -> float:
        """Bytes that the arrays of one batch may take."""
        return on_host

    def put(self, array):
        """An array of the host on the device; floats in the working type."""
        array = np.asarray(array)
        if array.dtype.kind == "f":
            return self.xp.asarray(array, dtype=self.dtype, device=self.device)
        return self.xp.asarray(array, device=self.device)

    def get(self, array) -> np.ndarray:
        """A copy on the host."""
        return array if isinstance(array, np.ndarray) else _array_api._convert_to_numpy(array, self.xp)

    def cast(self, array):
        """An array of the device in the working type; itself if it has that."""
        return array if array.dtype == self.dtype else self.xp.astype(array, self.dtype)  # bool masks too


HOST = Space(np, "cpu", np.float64)


def space_of(X) -> Space | None:
    """Where X lives, or None for everything that scikit-learn turns into NumPy arrays (all, without dispatch)."""
    xp, compliant = _array_api.get_namespace(X)
    if not compliant or _array_api._is_numpy_namespace(xp):
        return None
    device = _array_api.device(X)
    return Space(xp, device, _array_api._max_precision_float_dtype(xp, device))
