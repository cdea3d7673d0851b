"""Where arrays live: namespace, device and working precision, taken from the data and never from a global.

Whether arrays of other libraries are used as they are is scikit-learn's setting ``array_api_dispatch``. The namespace
comes from scikit-learn too, whose copy of array-api-compat makes PyTorch and CuPy follow the array API standard; it
has no public function for it. Everything else here is in the standard, or in the library's own documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

try:
    from sklearn.utils._array_api import get_namespace as _get_namespace
except ImportError:  # then only libraries that are in the standard by themselves
    _get_namespace = None

__all__ = ["HOST", "Space", "out_of_memory", "smaller_batch", "space_of", "trusted_solve"]


@dataclass(frozen=True)
class Space:
    """A namespace on a device, with the floating type that sums are taken in."""

    xp: Any
    device: Any
    dtype: Any

    @cached_property
    def on_host(self) -> bool:
        """Whether these are NumPy arrays (or what scipy makes of them)."""
        return self.xp is np

    @property
    def name(self) -> str:
        """Of the library: numpy, torch, cupy, array_api_strict."""
        return _library(self.xp)

    def batch_bytes(self, on_host: float) -> float:
        """Bytes that the arrays of one batch may take: a fixed sum on the host, a quarter of what a GPU has free."""
        if self.name == "torch" and getattr(self.device, "type", "cpu") == "cuda":
            cuda = self.xp.cuda  # what torch keeps for later use counts as taken there, but is ours to take
            kept = cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device)
            return 0.25 * float(cuda.mem_get_info(self.device)[0] + kept)
        if self.name == "cupy":
            return 0.25 * float(self.xp.cuda.runtime.memGetInfo()[0])
        return on_host

    def zeros(self, shape: int | tuple[int, ...]) -> Any:
        """Zeros of the working type."""
        return self.xp.zeros(shape, dtype=self.dtype, device=self.device)

    def put(self, array: Any) -> Any:
        """An array of the host on the device; floats in the working type."""
        array = np.asarray(array)
        if array.dtype.kind == "f":
            return self.xp.asarray(array, dtype=self.dtype, device=self.device)
        return self.xp.asarray(array, device=self.device)

    def get(self, array: Any) -> NDArray[Any]:
        """The same numbers on the host."""
        if isinstance(array, np.ndarray):
            return array
        if self.name == "torch":
            array = array.detach().cpu()
        elif self.name == "cupy":
            array = array.get()
        elif self.name == "array_api_strict":
            array = array.to_device(self.xp.Device("CPU_DEVICE"))
        return np.asarray(array)

    def cast(self, array: Any) -> Any:
        """An array of the device (a mask too) in the working type; itself if it has that."""
        return array if array.dtype == self.dtype else self.xp.astype(array, self.dtype)


HOST = Space(np, "cpu", np.float64)


def space_of(X: Any) -> Space | None:
    """Where X lives, or None for everything that scikit-learn turns into NumPy arrays (all, without dispatch)."""
    xp = _namespace(X) if sklearn.get_config()["array_api_dispatch"] else None
    if xp is None or _library(xp) == "numpy":
        return None
    device = X.device
    types = xp.__array_namespace_info__().dtypes(kind="real floating", device=device)
    return Space(xp, device, xp.float64 if "float64" in types else xp.float32)


def _namespace(X: Any) -> Any:
    """The functions of the library that X comes from, or None for what is not an array."""
    if _get_namespace is None:
        return X.__array_namespace__() if hasattr(X, "__array_namespace__") else None
    xp, is_array = _get_namespace(X)
    return xp if is_array else None


def _library(xp: Any) -> str:
    name: str = xp.__name__
    return name.removeprefix("sklearn.externals.").removeprefix("array_api_compat.").split(".")[0]


def out_of_memory(error: Exception) -> bool:
    """Whether an error of any library means that memory ran out."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def smaller_batch(error: Exception, size: int) -> int:
    """Half the batch if the device ran out of memory, the error itself otherwise."""
    if not out_of_memory(error):
        raise error
    if size <= 1:
        raise MemoryError(
            f"the device ran out of memory with a single member at a time ({error}). Free some, take smaller members "
            f"(max_features), give float32 data, or move X to the host."
        ) from error
    return size // 2


def trusted_solve(G: Any, C: Any, space: Space, limit: float) -> tuple[Any, NDArray[np.bool_]]:
    """Solutions (b, m, q) of stacked systems (b, m, m), (b, m, q) by Cholesky, and which of them to trust.

    A further right-hand side of noise is one step of inverse iteration on the matrices scaled to unit diagonal; it
    gives the smallest eigenvalue, as in :mod:`olsen._members.masked.iteration`.
    """
    xp = space.xp
    length = xp.sqrt(xp.linalg.diagonal(G))
    scale = xp.where(length > 0, 1 / xp.where(length > 0, length, xp.ones_like(length)), xp.zeros_like(length))
    dead = space.cast(length == 0)[:, :, None] * xp.eye(G.shape[1], dtype=space.dtype, device=space.device)[None, :, :]
    A = G * scale[:, :, None] * scale[:, None, :] + dead
    noise = space.put(np.random.default_rng(0).standard_normal((1, G.shape[1], 1)))
    B = xp.concat([C * scale[:, :, None], xp.broadcast_to(noise, (G.shape[0], G.shape[1], 1))], axis=2)
    Z = _cholesky_solve(A, B, space)
    w = Z[:, :, -1]
    smallest = space.get(xp.sum(w * noise[:, :, 0], axis=1) / xp.sum(w * w, axis=1))
    return Z[:, :, :-1] * scale[:, :, None], np.asarray(smallest >= 1 / limit)  # nan compares false


def _cholesky_solve(A: Any, B: Any, space: Space) -> Any:
    """Stacked solutions, nan where a matrix is not definite."""
    xp = space.xp
    if space.name == "torch":
        L, info = xp.linalg.cholesky_ex(A)
        L[info > 0] = float("nan")
        return xp.cholesky_solve(B, L)
    try:
        L = xp.linalg.cholesky(A)
    except Exception as error:  # every library has its own class for it
        if type(error).__name__ != "LinAlgError":
            raise
        if A.shape[0] == 1:
            return B * float("nan")
        return xp.concat([_cholesky_solve(A[i : i + 1, ...], B[i : i + 1, ...], space) for i in range(A.shape[0])])
    return xp.linalg.solve(xp.matrix_transpose(L), xp.linalg.solve(L, B))
