r"""The lasso of rows that stay implicit, on a working set of columns.

The path of all penalties is followed on the columns W with the largest products with the targets.
A column outside W belongs to the solution at :math:`\lambda` only if its gradient there exceeds the
penalty, :math:`|a_j'(B - A b)| > \lambda`. Columns that do join W, and the path is followed again, until
none does: the result is the path on all columns, up to the tolerance of coordinate descent.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.implicit import ImplicitRows
from .._kernel import wrappers as kernels

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MIN_WORKING_COLUMNS = 1000  # columns of the first working set, or a column for every row
MAX_DENSE_WORKING_NUMBERS = 1 << 24  # numbers of the first working set of dense X: 128 MB


def screened_lasso_path(
    rows: ImplicitRows, penalties: Array, *, max_columns: float, tol: float
) -> Array:
    """Coefficients (penalties, p, q) along falling penalties, as far as at most `max_columns` are in."""
    working = _first_working_set(rows)
    while True:
        path = _path(rows, working, penalties, max_columns, tol)
        joining = _violating_columns(rows, working, path, penalties[: len(path)], tol)
        if not len(joining):
            break
        working = np.union1d(working, joining)
    coefs = np.zeros((len(path), len(rows.scale), rows.B.shape[1]))
    coefs[:, working] = path
    return coefs


def _first_working_set(rows: ImplicitRows) -> Indices:
    """Columns with the largest products with the targets, in their order."""
    count = max(MIN_WORKING_COLUMNS, rows.n_rows)
    if not sp.issparse(rows.X):
        count = min(count, max(MIN_WORKING_COLUMNS, MAX_DENSE_WORKING_NUMBERS // rows.n_rows))
    varies = np.flatnonzero(rows.squares > 0)
    if len(varies) <= count:
        return varies
    sizes = np.linalg.norm(rows.C[varies], axis=1)
    return np.sort(varies[np.argsort(-sizes, kind="stable")[:count]])


def _path(
    rows: ImplicitRows, columns: Indices, penalties: Array, max_columns: float, tol: float
) -> Array:
    """Coefficients (penalties, columns, q) of the lasso on some columns."""
    squares = rows.squares[columns]
    if not sp.issparse(rows.X):
        return kernels.lasso_path(
            M=np.ascontiguousarray(rows.gathered(columns).T),
            targets=rows.B,
            squares=squares,
            penalties=penalties,
            max_columns=max_columns,
            tol=tol,
            from_rows=True,
        )
    X = rows.sparse_columns(columns)
    scale = rows.scale[columns]
    indptr = X.indptr.astype(np.int64)
    return kernels.sparse_lasso_path(
        columns=kernels.Lists.of(indptr, X.indices.astype(np.int64)),
        values=X.data * np.repeat(scale, np.diff(indptr)),
        mean=rows.mean[columns] * scale,
        weights=rows.root**2,
        targets=rows.B / rows.root[:, None],
        squares=squares,
        penalties=penalties,
        max_columns=max_columns,
        tol=tol,
    )


def _violating_columns(
    rows: ImplicitRows, columns: Indices, path: Array, penalties: Array, tol: float
) -> Indices:
    """Columns outside the working set whose step at some penalty would exceed the tolerance."""
    if len(columns) == np.count_nonzero(rows.squares):
        return np.empty(0, dtype=np.int64)
    slack = np.sqrt(tol * rows.squares)
    outside = rows.squares > 0
    outside[columns] = False
    violates = np.zeros(len(outside), dtype=bool)
    part = rows.of_columns(columns)
    n_targets = rows.B.shape[1]
    flat = np.moveaxis(path, 1, 0).reshape(len(columns), -1)
    residuals = np.tile(rows.B, len(path)) - part.times(flat)
    step = max(1, (1 << 22) // len(outside))  # penalties whose gradients are held at a time
    for start in range(0, len(path), step):
        some = slice(start * n_targets, (start + step) * n_targets)
        gradients = rows.transposed_times(residuals[:, some]).reshape(len(outside), -1, n_targets)
        excess = np.linalg.norm(gradients, axis=2) - penalties[start : start + step]
        violates |= np.any(excess > slack[:, None], axis=1)
    return np.flatnonzero(violates & outside)
