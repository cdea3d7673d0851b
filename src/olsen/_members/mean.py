"""Weighted mean of solved members, with their counts and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.moments import weighted_mean
from .._data.rows import RowData
from .._execution.arrays import HOST, Space, type_that_holds
from .._trust import require_finite
from ..subsets import Subsets
from .solution import Solution


@dataclass(frozen=True)
class Members:
    """Weighted mean of solved members. Two instances merge: a warm start, a stream and batches of
    members are merges.

    Parameters
    ----------
    coef : array of shape (p, q)
        Weighted mean of the members' coefficients, zero outside each member's columns; in the
        namespace of the data.
    intercept : array of shape (q,)
        Weighted mean of their intercepts.
    mean_y : array of shape (q,)
        Weighted mean of the mean targets of their rows; zeros without intercept. The scale shrinks
        towards it.
    counts : ndarray of shape (p,)
        Number of members that hold each column.
    weights : ndarray of shape (k,)
        Weights of the members, which sum to one. Empty, as `counts`, for infinitely many members.
    solver : str
        The solver that ran.
    n_fallbacks : int
        Number of members whose Gram matrix was not trusted, refitted from the data.
    space : Space
        Where the arrays of the mean live.
    """

    coef: Any
    intercept: Any
    mean_y: Any
    counts: NDArray[np.int64]
    weights: NDArray[np.float64]
    solver: str
    n_fallbacks: int
    space: Space = HOST

    @classmethod
    def of(
        cls,
        problem: RowData,
        features: Subsets,
        samples: Subsets | None,
        solution: Solution,
        weights: NDArray[np.float64] | None = None,
    ) -> Members:
        """Average the solved members of a problem, with equal weights by default."""
        k = len(features.sizes)
        weights = np.full(k, 1 / k) if weights is None else weights
        coef = member_sum(features, solution.values * np.repeat(weights, features.sizes)[:, None])
        intercept = np.tensordot(weights, solution.intercepts, 1)
        require_finite(coef, intercept)
        return cls(
            coef=coef,
            intercept=intercept,
            mean_y=mean_target(problem, samples, weights),
            counts=features.counts(),
            weights=weights,
            solver=solution.solver,
            n_fallbacks=int(solution.refitted.sum()),
        )

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def number(self) -> float:
        """Number of members: an integer, or infinity."""
        return len(self.weights) or math.inf

    @property
    def inclusion(self) -> NDArray[np.float64]:
        """Fraction of the members that hold each column."""
        return self.counts / len(self.weights)

    def on_host(self) -> Members:
        """Members as NumPy arrays; itself if its arrays are."""
        if self.space.on_host:
            return self
        coef, intercept, mean_y = (
            np.asarray(self.space.get(a)) for a in (self.coef, self.intercept, self.mean_y)
        )
        return replace(self, coef=coef, intercept=intercept, mean_y=mean_y, space=HOST)

    def in_space(self, space: Space) -> Members:
        """Members on the host as arrays of another library."""
        coef, intercept, mean_y = (
            space.put(array) for array in (self.coef, self.intercept, self.mean_y)
        )
        return replace(self, coef=coef, intercept=intercept, mean_y=mean_y, space=space)

    def scaled(self, scale: Any, dtype: Any) -> tuple[Any, Any]:
        """Coefficients (q, p) and intercepts (q,) of the mean member scaled about its mean target.

        The prediction is m + scale (x - mean_x)' b, with m the mean target; the scale is one number
        or one for each target, (q,). The type is `dtype` if it can hold the values, else the type
        of the sums.
        """
        xp = self.space.xp
        if np.ndim(scale):
            scale = self.space.put(np.asarray(scale, dtype=np.float64))
            coef = scale[:, None] * self.coef.T
        else:
            coef = scale * self.coef.T
        intercept = scale * self.intercept + (1 - scale) * self.mean_y
        if not bool(xp.all(xp.isfinite(coef))) or not bool(xp.all(xp.isfinite(intercept))):
            raise ValueError(
                f"coefficients would leave the range of {self.coef.dtype}. Change the units of X"
                " and y."
            )
        dtype = type_that_holds(self.space, dtype, coef, intercept)
        return xp.astype(coef, dtype), xp.astype(intercept, dtype)


def member_sum(features: Subsets, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum (p, q) over members of coefficients in the order of their columns, (entries, q), in the
    members' order.
    """
    columns = [
        np.bincount(features.indices, weights=v, minlength=features.n_items) for v in values.T
    ]
    return np.stack(columns, axis=1)


def mean_target(
    problem: RowData, samples: Subsets | None, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted mean over members of the mean target of their rows; zeros without intercept."""
    if not problem.null_rank:
        return np.zeros(problem.Y.shape[1])
    if samples is None:
        return (
            problem.moments.mean_y
            if problem.has_moments
            else np.asarray(weighted_mean(problem.Y, problem.weight))
        )
    weight = problem.weights
    starts = samples.indptr[:-1]
    totals = np.add.reduceat((weight[:, None] * problem.Y)[samples.indices], starts, axis=0)
    total_weights = np.add.reduceat(weight[samples.indices], starts)
    return np.asarray(weights @ (totals / total_weights[:, None]))


def by_target(members: list[Members]) -> Members:
    """Combine members of separate schemes for each target: each target takes its column."""
    first = members[0]
    if len(members) == 1:
        return first
    xp = first.space.xp
    counts = first.counts
    if len(first.weights):
        counts = np.sum([part.counts for part in members], axis=0) // len(members)
    # members may be those of all targets, or of one
    columns = [t if part.coef.shape[1] > 1 else 0 for t, part in enumerate(members)]
    parts = list(zip(members, columns, strict=True))
    return replace(
        first,
        coef=xp.stack([part.coef[:, t] for part, t in parts], axis=1),
        intercept=xp.stack([part.intercept[t] for part, t in parts]),
        mean_y=xp.stack([part.mean_y[t] for part, t in parts]),
        counts=counts,
        n_fallbacks=sum(part.n_fallbacks for part in members),
    )
