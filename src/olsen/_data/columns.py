"""Columns of the training rows in the form of the compiled kernels: centred, sqrt-weighted and padded
to full panels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.threads import Threads
from .._kernel.wrappers import MemberData
from .._trust import EPS, rounding_of_factors
from .moments import constant_columns
from .rows import RowData

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LANES = 8  # rows of a panel of the kernel


@dataclass(frozen=True)
class Columns:
    """Columns and targets, centred and sqrt-weighted, with rows padded by zeros to full panels."""

    A: NDArray[np.float64]  # (p, rows)
    Y: NDArray[np.float64]  # (rows, q)
    n: int  # rows without padding
    mean_x: NDArray[np.float64]  # (p,) means subtracted from X, zeros without intercept
    mean_y: NDArray[np.float64]  # (q,) means subtracted from Y, zeros without intercept
    root: NDArray[np.float64]  # (rows,) roots of the weights, one in the padding
    # (rows,) weight of every row in the means, zero without intercept
    mean_weights: NDArray[np.float64]
    for_kernels: MemberData  # arrays by which kernels confirm dependent columns

    @classmethod
    def from_problem(
        cls, problem: RowData, threads: Threads | None = None, rows: Indices | None = None
    ) -> Columns:
        """Copy all rows, centred at the means of `rows`, or of all rows by default."""
        part = problem if rows is None else problem.take(rows)
        n, p = problem.shape
        mean_x, mean_y = part.means
        total_weight = part.total_weight
        null_rank = problem.null_rank
        root = np.sqrt(problem.weights)
        memory.require(
            8.0 * n * p,
            "A copy of X by columns",
            "Use fewer rows, or drop columns that repeat others.",
        )
        A = np.zeros((p, _padded(n)))

        def work(start: int, stop: int) -> None:
            raw = problem.X[:, start:stop]
            centred = A[start:stop, :n]
            np.subtract(
                (raw.toarray() if sp.issparse(raw) else raw).T,
                mean_x[start:stop, None],
                out=centred,
            )
            if problem.weight is not None:
                centred *= root

        if threads is None:
            step = max(1, -(-p // 8))  # columns of sparse X that are dense at a time
            for start in range(0, p, step):
                work(start, start + step)
        else:
            threads.without_blas(work, p)
        if null_rank:
            A_part = A if rows is None else A[:, rows]
            squares = (
                np.diagonal(part.moments.G)
                if part.has_moments
                else np.einsum("jl,jl->j", A_part, A_part)
            )
            A[constant_columns(squares, mean_x, total_weight)] = 0.0
        far = 4 * EPS * np.abs(mean_x) * np.sqrt(total_weight)
        columns = cls.plain(
            A, (problem.Y - mean_y) * root[:, None], far, rounding_of_factors(max(n, p))
        )
        columns.root[:n] = root
        columns.mean_weights[:n] = root**2 / total_weight * null_rank
        return replace(columns, n=n, mean_x=mean_x, mean_y=mean_y)

    @classmethod
    def plain(cls, A: Array, Y: Array, far: Array | None = None, relative: float = 0.0) -> Columns:
        """Unweighted, uncentred columns (p, n) and targets (n, q), such as a triangular factor or
        rows to predict.
        """
        p, n = A.shape
        q = Y.shape[1]
        size = _padded(n)
        padded_A = np.ascontiguousarray(A if size == n else np.pad(A, ((0, 0), (0, size - n))))
        padded_Y = np.zeros((size, q))
        padded_Y[: len(Y)] = Y
        far = np.zeros(p) if far is None else far
        return cls(
            A=padded_A,
            Y=padded_Y,
            n=n,
            mean_x=np.zeros(p),
            mean_y=np.zeros(q),
            root=np.ones(size),
            mean_weights=np.zeros(size),
            for_kernels=MemberData(padded_A, padded_Y, far, relative),
        )


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES
