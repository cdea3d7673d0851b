"""Where arrays live: namespace, device and working precision, taken from the data and never from a global.

Whether arrays of other libraries are used as they are is scikit-learn's setting ``array_api_dispatch``. The namespace
comes from scikit-learn too, whose copy of array-api-compat makes PyTorch and CuPy follow the array API standard; it
has no public function for it. Everything else here is in the standard, or in the library's own documentation.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from .threads import cached_property


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

    @cached_property
    def name(self) -> str:
        """Of the library: numpy, torch, cupy, array_api_strict."""
        return _library(self.xp)

    def batch_bytes(self, on_host: float) -> float:
        """Bytes that the arrays of one batch may take: a fixed sum on the host, a quarter of what a GPU has free."""
        if self.name == "torch" and getattr(self.device, "type", "cpu") == "cuda":
            cuda, about = self.xp.cuda, self.xp.cuda.memory_stats(self.device)
            # what torch keeps for later use counts as taken there, but is ours to take
            kept = about.get("reserved_bytes.all.current", 0) - about.get("allocated_bytes.all.current", 0)
            return 0.25 * float(cuda.mem_get_info(self.device)[0] + kept)
        if self.name == "cupy":
            return 0.25 * float(self.xp.cuda.runtime.memGetInfo()[0])
        return on_host

    @cached_property
    def parallel(self) -> bool:
        """Whether the device does many things at once and is slow to start on each, as a GPU."""
        return self.name == "cupy" or (self.name == "torch" and self.device.type != "cpu")

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
        if self.on_host or isinstance(array, np.ndarray):
            here: NDArray[Any] = array
            return here
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

    def add_product(self, out: Any, factor: Any, array: Any, sign: float = 1.0) -> None:
        """out + sign * factor * array, in place; torch does it in one pass over memory."""
        if self.name == "torch":
            out.addcmul_(factor, array, value=sign)
        else:
            out += (sign * factor) * array

    def scale_and_add(self, out: Any, factor: Any, array: Any) -> None:
        """factor * out + array, in place."""
        if self.name == "torch":
            self.xp.addcmul(array, factor, out, out=out)
        else:
            out *= factor
            out += array

    def ratio(self, a: Any, b: Any) -> Any:
        """a / b, and 0 where b is not positive."""
        if self.name == "torch":  # warns of nothing, and takes a number beside an array
            return (a / b).where(b > 0, 0.0)
        positive = b > 0
        return self.xp.where(positive, a / self.xp.where(positive, b, self.xp.ones_like(b)), self.xp.zeros_like(b))

    def column_squares(self, A: Any) -> Any:
        """Squares of columns, summed; torch makes no array of squares on a GPU."""
        if self.name == "torch" and self.parallel:
            return self.xp.linalg.vector_norm(A, axis=0) ** 2
        return self.xp.sum(A * A, axis=0)

    def cholesky(self, A: Any) -> Any | None:
        """Lower factors of stacked matrices, None where any of them is not definite."""
        if self.name == "torch":
            L, info = self.xp.linalg.cholesky_ex(A)
            return None if bool(self.xp.any(info > 0)) else L
        try:
            if self.name == "cupy":
                # says nothing of a matrix that is not definite unless it is asked to
                with import_module("cupyx").errstate(linalg="raise"):
                    return self.xp.linalg.cholesky(A)
            return self.xp.linalg.cholesky(A)
        except Exception as error:
            if type(error).__name__ != "LinAlgError":  # every library has a class of its own for it
                raise
            return None

    def inverse_of_lower(self, L: Any) -> Any:
        """Inverses of stacked lower triangular matrices."""
        if self.name == "torch":
            eye = self.xp.eye(L.shape[-1], dtype=L.dtype, device=self.device)
            return self.xp.linalg.solve_triangular(L, eye.expand(L.shape), upper=False)
        return self.xp.tril(self.xp.linalg.inv(L))  # rounding above the diagonal


HOST = Space(np, "cpu", np.float64)
# NumPy hands A A' to the symmetric product of BLAS, and that of OpenBLAS ends the process by a segmentation fault where
# A is large: seen with 20 000 x 50 000 numbers in column order, reported for 80 000 x 3072 (numpy/numpy#19685). From so
# many numbers on, of A or of the result, the product is made of tiles.
LARGE_PRODUCT, TILE = 1 << 27, 4096
# Products of single precision that underflow are off by 1e-45 at most: below this size of a prediction that counts.
SMALLEST_SINGLE = 1e-30


def row_products(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """A A', the products of the rows of A with each other, however large A is."""
    n, p = A.shape
    if n * max(n, p) < LARGE_PRODUCT:
        return np.asarray(A @ A.T)
    products = np.zeros((n, n))
    parts = [slice(start, start + TILE) for start in range(0, n, TILE)]
    for i, rows in enumerate(parts):
        for others in parts[: i + 1]:
            for start in range(0, p, TILE):
                columns = slice(start, start + TILE)
                products[rows, others] += A[rows, columns] @ A[others, columns].T
            products[others, rows] = products[rows, others].T
    return products


def type_that_holds(space: Space, dtype: Any, *arrays: Any) -> Any:
    """The floating type `dtype` if it holds these numbers with all its digits, else the type that they are in.

    Single precision ends at 3.4e38 and loses digits below 1.2e-38, which ratios of two units may well be.
    """
    xp, limits = space.xp, space.xp.finfo(dtype)
    for array in arrays:
        sizes = xp.abs(array)
        beyond = (sizes > limits.max) | ((sizes > 0) & (sizes < limits.smallest_normal))
        if bool(xp.any(beyond)):
            return array.dtype
    return dtype


def predictions(space: Space, X: Any, coef: Any, intercept: Any) -> Any:
    """X coef' + intercept for X dense or sparse, in the common type of X and the coefficients.

    Single precision may hold X and the coefficients and still not their products. These are then made in double
    precision, and the predictions stay in it unless single precision holds them.
    """
    by_column = coef if coef.ndim == 1 else coef.T
    if not (X.dtype == coef.dtype == space.xp.float32):
        return _dense(space, X @ by_column) + intercept
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        products = _dense(space, X @ by_column)
        single = products + intercept
    if space.dtype == space.xp.float32 or _in_single_range(space, products, single, coef):
        return single
    double = _dense(space, _in_double(space, X) @ _in_double(space, by_column)) + intercept
    return space.xp.astype(double, type_that_holds(space, single.dtype, double))


def _in_single_range(space: Space, products: Any, single: Any, coef: Any) -> bool:
    """Whether products and predictions in single precision neither left its range nor lost all digits."""
    xp = space.xp
    if 0 in products.shape:
        return True
    if not bool(xp.all(xp.isfinite(single))):
        return False
    return float(xp.max(xp.abs(products))) >= SMALLEST_SINGLE or not bool(xp.any(coef != 0))


def _in_double(space: Space, array: Any) -> Any:
    return array.astype(np.float64) if space.on_host else space.xp.astype(array, space.dtype)


def _dense(space: Space, products: Any) -> Any:
    return np.asarray(products) if space.on_host else products


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
    from sklearn.utils._array_api import get_namespace  # private; only dispatch needs it

    with suppress(TypeError):  # which older versions raise for lists
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
    """Half the batch if the device ran out of memory, the error itself otherwise."""
    if not out_of_memory(error):
        raise error
    if size <= 1:
        raise MemoryError(
            f"the device ran out of memory with a single member at a time ({error}). Free some, take smaller members "
            f"(max_features), give float32 data, or move X to the host."
        ) from error
    return size // 2
