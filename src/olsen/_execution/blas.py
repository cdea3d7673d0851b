"""One BLAS routine that lets other threads run.

SciPy's wrappers hold the interpreter lock, NumPy's product cannot add to what is there; SciPy's table of BLAS routines
for compiled callers, called through ctypes, does both.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_gram"]


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
    n, k, one = byref(c_int(width)), byref(c_int(rows)), byref(c_double(1.0))
    _dsyrk()(b"L", b"N", n, k, one, Z.ctypes.data, n, one, M.ctypes.data, n)


@cache
def _dsyrk():
    """Fortran's ``dsyrk(uplo, trans, n, k, alpha, a, lda, beta, c, ldc)``."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["dsyrk"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    integer, real = POINTER(c_int), POINTER(c_double)
    kind = ctypes.CFUNCTYPE(
        None, c_char_p, c_char_p, integer, integer, real, c_void_p, integer, real, c_void_p, integer
    )
    return kind(pointer(capsule, name(capsule)))
