"""Coefficients and intercepts of members, as solvers return them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Threads

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Solution:
    """Coefficients of members, stored in the order of the column subsets.

    Parameters
    ----------
    values : ndarray of shape (indptr[-1], q)
        Coefficients of all members, one after the other, aligned with the indices of their subsets.
    intercepts : ndarray of shape (k, q)
        Zeros without intercept.
    refitted : ndarray of shape (k,)
        Members whose Gram matrix was not trusted and that were refitted from the data.
    solver : str
        Name of the solver.
    """

    values: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    refitted: NDArray[np.bool_]
    solver: str

    @classmethod
    def empty(cls, sizes: NDArray[np.int64], q: int, solver: str) -> Solution:
        """Zeros for members of the given sizes, to be filled."""
        k = len(sizes)
        values = np.zeros((int(np.sum(sizes)), q))
        return cls(
            values, intercepts=np.zeros((k, q)), refitted=np.zeros(k, dtype=bool), solver=solver
        )

    @classmethod
    def member_by_member(
        cls,
        solve_one: Callable[[int], tuple[Array, Array, bool]],
        sizes: Indices,
        q: int,
        name: str,
        threads: Threads,
    ) -> Solution:
        """Collect ``solve_one(i) -> (coef (m, q), intercept (q,), refitted)`` over all members."""
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        solution = cls.empty(sizes, q, name)

        def work(start: int, stop: int) -> None:
            for i in range(start, stop):
                coef, intercept, refitted = solve_one(i)
                solution.values[indptr[i] : indptr[i + 1]] = coef
                solution.intercepts[i] = intercept
                solution.refitted[i] = refitted

        threads(work, len(sizes))
        return solution

    def put(self, members: Indices, sizes: Indices, part: Solution, *, refitted: bool) -> None:
        """Write the solution of some members into this one; `sizes` has all members' sizes."""
        written = np.zeros(len(sizes), dtype=bool)
        written[members] = True
        self.values[np.repeat(written, sizes)] = part.values
        self.intercepts[members] = part.intercepts
        self.refitted[members] = part.refitted | refitted
