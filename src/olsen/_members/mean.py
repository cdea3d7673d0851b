"""What remains of members once they are solved: their mean, and what is known of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import HOST, Space, type_that_holds
from .._moments.moments import weighted_mean
from .._trust import require_finite
from ..subsets import Subsets
from .problem import Problem, Solution


@dataclass(frozen=True)
class Members:
    """What solving members gave. Two of these merge: a warm start, a stream and batches of members are merges.

    Parameters
    ----------
    coef : array of shape (p, q)
        Weighted mean of the members' coefficients, zero outside each member's columns; in the namespace of the data.
    intercept : array of shape (q,)
        The same of their intercepts.
    mean_y : array of shape (q,)
        The same of the mean targets of their rows; zeros without intercept. The scale shrinks towards it.
    counts : ndarray of shape (p,)
        How many members hold each column.
    weights : ndarray of shape (k,)
        Weight of every member; they sum to one. Empty, as `counts`: these are infinitely many members.
    solver : str
        The solver that ran.
    n_fallbacks : int
        Members whose Gram matrix was not to be trusted, solved again from the data.
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
        problem: Problem,
        features: Subsets,
        samples: Subsets | None,
        solution: Solution,
        weights: NDArray[np.float64] | None = None,
    ) -> Members:
        """The mean of solved members of a problem, with equal weights unless others are given."""
        k = len(features)
        shares = np.full(k, 1 / k) if weights is None else weights
        coef = member_sum(features, solution.values * np.repeat(shares, features.sizes)[:, None])
        intercept = np.tensordot(shares, solution.intercepts, 1)
        require_finite(coef, intercept)
        mean_y, n_fallbacks = mean_target(problem, samples, shares), int(solution.refitted.sum())
        return cls(coef, intercept, mean_y, features.counts(), shares, solution.solver, n_fallbacks)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def number(self) -> float:
        """How many they are: a whole number, or infinity."""
        return len(self.weights) or math.inf

    @property
    def inclusion(self) -> NDArray[np.float64]:
        """Share of the members that hold each column."""
        return self.counts / len(self)

    def on_host(self) -> Members:
        """The same as NumPy arrays."""
        coef, intercept, mean_y = (np.asarray(self.space.get(a)) for a in (self.coef, self.intercept, self.mean_y))
        return replace(self, coef=coef, intercept=intercept, mean_y=mean_y, space=HOST)

    def in_space(self, space: Space) -> Members:
        """The mean of members on the host as arrays of another library."""
        coef, intercept, mean_y = (space.put(array) for array in (self.coef, self.intercept, self.mean_y))
        return replace(self, coef=coef, intercept=intercept, mean_y=mean_y, space=space)

    def scaled(self, scale: Any, dtype: Any) -> tuple[Any, Any]:
        """Coefficients (q, p) and intercepts (q,) of the mean member scaled about its mean target.

        The prediction is m + scale (x - mean_x)' b, m the mean target; a scale for all targets or for each, (q,). They
        are of the type `dtype` where that holds them, else as they were summed.
        """
        xp = self.space.xp
        if np.ndim(scale):
            scale = self.space.put(np.asarray(scale, dtype=np.float64))
            coef = scale[:, None] * self.coef.T
        else:
            coef = scale * self.coef.T
        intercept = scale * self.intercept + (1 - scale) * self.mean_y
        if not bool(xp.all(xp.isfinite(coef))) or not bool(xp.all(xp.isfinite(intercept))):
            raise ValueError(f"coefficients would leave the range of {self.coef.dtype}. Change the units of X and y.")
        dtype = type_that_holds(self.space, dtype, coef, intercept)
        return xp.astype(coef, dtype), xp.astype(intercept, dtype)


def member_sum(features: Subsets, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum (p, q) over members of coefficients laid out like their columns, (entries, q), in the members' order."""
    columns = [np.bincount(features.indices, weights=v, minlength=features.n_items) for v in values.T]
    return np.stack(columns, axis=1)


def mean_target(problem: Problem, samples: Subsets | None, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted mean over members of the mean target of their rows; zeros without intercept."""
    if not problem.fit_intercept:
        return np.zeros(problem.Y.shape[1])
    if samples is None:
        return problem.moments.mean_y if problem.has_moments else np.asarray(weighted_mean(problem.Y, problem.weight))
    weight = problem.weights
    starts = samples.indptr[:-1]
    totals = np.add.reduceat((weight[:, None] * problem.Y)[samples.indices], starts, axis=0)
    return np.asarray(weights @ (totals / np.add.reduceat(weight[samples.indices], starts)[:, None]))


def by_target(members: list[Members]) -> Members:
    """Of members of every target's own schemes, the column of that target."""
    first = members[0]
    if len(members) == 1:
        return first
    xp = first.space.xp
    return replace(
        first,
        coef=xp.stack([own.coef[:, t] for t, own in enumerate(members)], axis=1),
        intercept=xp.stack([own.intercept[t] for t, own in enumerate(members)]),
        counts=np.sum([own.counts for own in members], axis=0) // len(members) if len(first) else first.counts,
        n_fallbacks=sum(own.n_fallbacks for own in members),
    )
