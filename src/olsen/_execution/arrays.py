"""Namespace, device and working precision of arrays, taken from the data and never from a global.

scikit-learn's setting ``array_api_dispatch`` decides whether arrays of other libraries are used
without conversion. The namespace also comes from scikit-learn, whose copy of array-api-compat makes
PyTorch and CuPy follow the array API standard; scikit-learn has no public function for it. All
other calls are part of the standard or documented by the library.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from .caching import cached_property


@dataclass(frozen=True)
class Space:
    """Namespace and device of arrays, with the floating type of sums."""

    xp: Any
    device: Any
    dtype: Any

    @cached_property
    def on_host(self) -> bool:
        """Whether the arrays are NumPy arrays or SciPy sparse matrices."""
        return self.xp is np

    @cached_property
    def name(self) -> str:
        """Name of the library: numpy, torch, cupy, array_api_strict."""
        return _library(self.xp)

    def batch_bytes(self, on_host: float) -> float:
        """Maximal size of the arrays of one batch in bytes: `on_host` on the host, a quarter of a
        GPU's free memory.
        """
        if self.name == "torch" and getattr(self.device, "type", "cpu") == "cuda":
            cuda = self.xp.cuda
            stats = cuda.memory_stats(self.device)
            # The memory that torch has cached is not free for the driver, but torch can allocate
            # it.
            cached = stats.get("reserved_bytes.all.current", 0) - stats.get(
                "allocated_bytes.all.current", 0
            )
            return 0.25 * float(cuda.mem_get_info(self.device)[0] + cached)
        if self.name == "cupy":
            return 0.25 * float(self.xp.cuda.runtime.memGetInfo()[0])
        return on_host

    @cached_property
    def parallel(self) -> bool:
        """Whether the device is massively parallel and slow to launch an operation, as a GPU is."""
        return self.name == "cupy" or (self.name == "torch" and self.device.type != "cpu")

    def zeros(self, shape: int | tuple[int, ...]) -> Any:
        """Array of zeros of the working type."""
        return self.xp.zeros(shape, dtype=self.dtype, device=self.device)

    def put(self, array: Any) -> Any:
        """Copy an array from the host to the device; floats in the working type."""
        array = np.asarray(array)
        if array.dtype.kind == "f":
            return self.xp.asarray(array, dtype=self.dtype, device=self.device)
        return self.xp.asarray(array, device=self.device)

    def get(self, array: Any) -> NDArray[Any]:
        """Copy an array from the device to the host; arrays on the host are returned unchanged."""
        if self.on_host or isinstance(array, np.ndarray):
            host_array: NDArray[Any] = array
            return host_array
        if self.name == "torch":
            array = array.detach().cpu()
        elif self.name == "cupy":
            array = array.get()
        elif self.name == "array_api_strict":
            array = array.to_device(self.xp.Device("CPU_DEVICE"))
        return np.asarray(array)

    def cast(self, array: Any) -> Any:
        """Convert an array or mask on the device to the working type, without a copy if it has that
        type.
        """
        return array if array.dtype == self.dtype else self.xp.astype(array, self.dtype)

    def add_product(self, out: Any, factor: Any, array: Any, sign: float = 1.0) -> None:
        """Add sign * factor * array to `out` in place; torch does this in one pass over memory."""
        if self.name == "torch":
            out.addcmul_(factor, array, value=sign)
        else:
            out += (sign * factor) * array

    def scale_and_add(self, out: Any, factor: Any, array: Any) -> None:
        """Replace `out` by factor * out + array in place."""
        if self.name == "torch":
            self.xp.addcmul(array, factor, out, out=out)
        else:
            out *= factor
            out += array

    def ratio(self, a: Any, b: Any) -> Any:
        """Quotient a / b, and 0 where b is not positive."""
        if self.name == "torch":  # does not warn, and `where` accepts a number
            return (a / b).where(b > 0, 0.0)
        positive = b > 0
        divisor = self.xp.where(positive, b, self.xp.ones_like(b))
        return self.xp.where(positive, a / divisor, self.xp.zeros_like(b))

    def column_squares(self, A: Any) -> Any:
        """Sums of squares of the columns; on a GPU, torch computes norms without an array of
        squares.
        """
        if self.name == "torch" and self.parallel:
            return self.xp.linalg.vector_norm(A, axis=0) ** 2
        return self.xp.sum(A * A, axis=0)

    def cholesky(self, A: Any) -> Any | None:
        """Lower Cholesky factors of stacked matrices; None if any matrix is not positive definite."""
        if self.name == "torch":
            L, info = self.xp.linalg.cholesky_ex(A)
            return None if bool(self.xp.any(info > 0)) else L
        try:
            if self.name == "cupy":
                # CuPy reports a matrix that is not definite only inside this context
                with import_module("cupyx").errstate(linalg="raise"):
                    return self.xp.linalg.cholesky(A)
            return self.xp.linalg.cholesky(A)
        except Exception as error:
            if (
                type(error).__name__ != "LinAlgError"
            ):  # every library has a separate class of this name
                raise
            return None

    def inverse_of_lower(self, L: Any) -> Any:
        """Inverses of stacked lower triangular matrices."""
        if self.name == "torch":
            eye = self.xp.eye(L.shape[-1], dtype=L.dtype, device=self.device)
            return self.xp.linalg.solve_triangular(L, eye.expand(L.shape), upper=False)
        return self.xp.tril(self.xp.linalg.inv(L))  # removes rounding errors above the diagonal


HOST = Space(np, "cpu", np.float64)
# NumPy computes A A' by the symmetric product of BLAS, and OpenBLAS crashes with a segmentation
# fault there if A is large and several threads are in use: seen with 20 000 x 200 numbers in row
# order and 20 000 x 50 000 in column order, reported for 80 000 x 3072 (numpy/numpy#19685). If A or
# the result has this many numbers, the product is computed in tiles.
LARGE_PRODUCT = 1 << 27
TILE = 4096  # rows and columns of a tile


def is_large_product(shape: tuple[int, int]) -> bool:
    """Whether the symmetric product A A' of BLAS may crash for A of this shape."""
    n, p = shape
    return n * max(n, p) >= LARGE_PRODUCT


def row_products(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gram matrix A A' of the rows of A, for A of any size."""
    n = len(A)
    if not is_large_product(A.shape):
        return np.asarray(A @ A.T)
    products = np.zeros((n, n))
    add_row_products(products, A)
    for start in range(0, n, TILE):
        stop = start + TILE
        products[start:stop, stop:] = products[stop:, start:stop].T
    return products


def add_row_products(lower: NDArray[np.float64], A: NDArray[np.float64]) -> None:
    """Add A A' to the tiles of `lower` on and below the diagonal, by general products of tiles."""
    n, p = A.shape
    tiles = [slice(start, start + TILE) for start in range(0, n, TILE)]
    for i, first in enumerate(tiles):
        for second in tiles[: i + 1]:
            for start in range(0, p, TILE):
                columns = slice(start, start + TILE)
                # a product of a tile with its transpose is symmetric too, but small
                lower[first, second] += A[first, columns] @ A[second, columns].T


def type_that_holds(space: Space, dtype: Any, *arrays: Any) -> Any:
    """Return `dtype` if it holds all numbers of the arrays without loss of digits, otherwise the
    type of the array.

    Single precision ends at 3.4e38 and loses digits below 1.2e-38, which ratios of two units may
    well reach.
    """
    xp = space.xp
    limits = xp.finfo(dtype)
    for array in arrays:
        magnitudes = xp.abs(array)
        out_of_range = (magnitudes > limits.max) | (
            (magnitudes > 0) & (magnitudes < limits.smallest_normal)
        )
        if bool(xp.any(out_of_range)):
            return array.dtype
    return dtype


def predictions(space: Space, X: Any, coef: Any, intercept: Any) -> Any:
    """Predictions X coef' + intercept for dense or sparse X, in the common type of X and the
    coefficients.

    The products of X and the coefficients may exceed single precision even if both factors fit. The
    products are then computed in double precision, and the predictions are double unless single
    precision holds their values.
    """
    columns = coef if coef.ndim == 1 else coef.T
    if not (X.dtype == coef.dtype == space.xp.float32):
        return _dense(space, X @ columns) + intercept
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        products = _dense(space, X @ columns)
        single = products + intercept
    if space.dtype == space.xp.float32 or _in_single_range(space, products, single, coef):
        return single
    double = _dense(space, _in_double(space, X) @ _in_double(space, columns)) + intercept
    return space.xp.astype(double, type_that_holds(space, single.dtype, double))


def _in_single_range(space: Space, products: Any, single: Any, coef: Any) -> bool:
    """Whether products and predictions stayed within the range of single precision and did not all
    underflow.
    """
    xp = space.xp
    if 0 in products.shape:
        return True
    if not bool(xp.all(xp.isfinite(single))):
        return False
    # products that underflow in single precision have errors of 1e-45 at most, which matter for
    # predictions below this
    return float(xp.max(xp.abs(products))) >= 1e-30 or not bool(xp.any(coef != 0))


def _in_double(space: Space, array: Any) -> Any:
    return array.astype(np.float64) if space.on_host else space.xp.astype(array, space.dtype)


def _dense(space: Space, products: Any) -> Any:
    return np.asarray(products) if space.on_host else products


def space_of(X: Any) -> Space | None:
    """Space of X, or None if scikit-learn converts X to a NumPy array, as it always does without
    dispatch.
    """
    xp = _namespace(X) if sklearn.get_config()["array_api_dispatch"] else None
    if xp is None or _library(xp) == "numpy":
        return None
    device = X.device
    types = xp.__array_namespace_info__().dtypes(kind="real floating", device=device)
    return Space(xp, device, xp.float64 if "float64" in types else xp.float32)


def _namespace(X: Any) -> Any:
    """Array API namespace of the library of X, or None if X is not an array."""
    from sklearn.utils._array_api import get_namespace  # private; only dispatch needs it

    with suppress(TypeError):  # older versions raise this for lists
        xp, is_array = get_namespace(X)
        return xp if is_array else None
    return None


def _library(xp: Any) -> str:
    name: str = xp.__name__
    return name.removeprefix("sklearn.externals.").removeprefix("array_api_compat.").split(".")[0]


def out_of_memory(error: Exception) -> bool:
    """Whether an error of any library means that memory ran out."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def smaller_batch(error: Exception, size: int) -> int:
    """Return half the batch size if the device ran out of memory; raise any other error."""
    if not out_of_memory(error):
        raise error
    if size <= 1:
        raise MemoryError(
            f"the device ran out of memory with a single member at a time ({error}). Free some,"
            " take smaller members (max_features), give float32 data, or move X to the host."
        ) from error
    return size // 2
