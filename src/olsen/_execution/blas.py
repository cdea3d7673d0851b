"""One BLAS routine that lets other threads run.

SciPy's wrappers hold the interpreter lock, NumPy's product cannot add to what is there; SciPy's table of BLAS routines
for compiled callers, called through ctypes, does both. Where that table is not as expected, the wrapper does the same
work, one thread at a time.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_void_p
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import LowLevelCallable
from scipy.linalg import blas, cython_blas

__all__ = ["add_gram"]

# of Fortran's dsyrk(uplo, trans, n, k, alpha, a, lda, beta, c, ldc); Cython has a name of its own for double
_SIGNATURE = re.compile(r"void \(char \*, char \*, int \*, int \*, (\w+ \*), \1, int \*, \1, \1, int \*\)")


def add_gram(Z: NDArray[np.float64], M: NDArray[np.float64]) -> None:
    """Add Z'Z to the lower triangle of M, in place; Z in C order, M in Fortran order, both float64.

    >>> M = np.zeros((2, 2), order="F")
    >>> add_gram(np.array([[1.0, 2.0], [3.0, 4.0]]), M)
    >>> np.tril(M).tolist()
    [[10.0, 0.0], [14.0, 20.0]]
    """
    rows, width = Z.shape
    if not (Z.flags.c_contiguous and M.flags.f_contiguous and Z.dtype == M.dtype == np.float64):
        raise TypeError("Z must be C-ordered and M Fortran-ordered, both float64.")
    if not rows:
        return
    dsyrk = _dsyrk()
    if dsyrk is None:
        blas.dsyrk(1.0, Z.T, beta=1.0, c=M, lower=1, overwrite_c=1)
        return
    n, k, one = byref(c_int(width)), byref(c_int(rows)), byref(c_double(1.0))
    dsyrk(b"L", b"N", n, k, one, Z.ctypes.data, n, one, M.ctypes.data, n)


@cache
def _dsyrk() -> Callable[..., None] | None:
    """The routine for compiled callers, or None if it is not there or takes other arguments (integers of 64 bits)."""
    try:
        found = LowLevelCallable.from_cython(cython_blas, "dsyrk")
    except ValueError:
        return None
    if not _SIGNATURE.fullmatch(found.signature):
        return None
    integer, real = POINTER(c_int), POINTER(c_double)
    kind = ctypes.CFUNCTYPE(
        None, c_char_p, c_char_p, integer, integer, real, c_void_p, integer, real, c_void_p, integer
    )
    return kind(_address(found.function, found.signature))


def _address(capsule: Any, name: str) -> int:
    """What a capsule of that name points to."""
    kind = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)  # a function of our own: pythonapi's is everybody's
    address = kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, name.encode())
    return int(address)
