r"""Variance of the mean of the members over random draws.

Members come in batches that are drawn independently of each other (with a balanced
design a batch holds whole groups of members that avoid each other). The mean of B batches varies
over draws with variance :math:`s^2 / B`,
:math:`s^2` the variance of the batches. Status: exact up to the noise of a variance from B batches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._data.moments import Moments
from ..._data.training import TrainingData
from ..._execution.options import Options
from ..._members.ensemble import solve_ensemble
from ...subsets import Design, group_size
from ..chunks import dense

Array = NDArray[np.float64]


class Draws(NamedTuple):
    """Mean of the members, and its variance over random draws of the members."""

    coef: Array  # (p, q) mean of all members, scaled
    variance: (
        Array  # (q,) variance of the mean prediction over draws, on average over the training rows
    )
    # size of a group of members that avoid each other; the variance falls as 1 / number of groups
    group: int


def solve_draws(
    data: TrainingData,
    design: Design,
    k: int,
    scale: Any,
    *,
    options: Options,
    max_batches: int = 100,
) -> Draws:
    """Solve k members once more, in five to a hundred independent batches of whole groups of a
    balanced design.
    """
    design = data.complete(design)
    group = 1
    if design.kind == "balanced" and design.sampling != "determinantal":
        size = np.clip(design.expected_size, 1, design.n_items)
        group = int(group_size(size / design.n_items))
    if k < 5 * group:
        raise ValueError(
            f"{k} members are too few to estimate the variation between draws; at least {5 * group}"
            f" members are needed (5 groups of {group})."
        )
    n_groups = k // group
    group_edges = np.linspace(0, n_groups, min(n_groups, max_batches) + 1)[:-1]
    edges = [*(int(edge) * group for edge in group_edges), k]
    members = [
        solve_ensemble(data, design, start, stop, options=options).on_host()
        for start, stop in pairwise(edges)
    ]
    coefs, intercepts = zip(*(batch.scaled(scale, np.float64) for batch in members), strict=True)
    coef = np.stack(coefs)  # (batches, q, p)
    intercept = np.stack(intercepts)  # (batches, q)
    rows = data.host_rows
    if rows is None:
        variance = _variance_from_moments(coef, intercept, data.total_moments())
    else:
        variance = _variance_on_rows(coef, intercept, rows.X)
    mean_coef = np.tensordot(np.diff(edges) / k, coef, 1).T
    return Draws(mean_coef, variance / len(coef), group)


def _variance_from_moments(coef: Array, intercept: Array, moments: Moments) -> Array:
    """Variance of the predictions over batches, (q,), on average over the training rows."""
    deviations = coef - coef.mean(axis=0)
    squares = np.einsum("bqi,ij,bqj->q", deviations, moments.G, deviations) / moments.weight
    at_means = intercept + moments.centred * (coef @ moments.mean_x)
    return np.asarray(squares / (len(coef) - 1) + at_means.var(axis=0, ddof=1))


def _variance_on_rows(coef: Array, intercept: Array, X: Any, max_rows: int = 2000) -> Array:
    """Variance of the predictions over batches, (q,), on average over a sample of the rows."""
    n = X.shape[0]
    sample = np.linspace(0, n - 1, min(n, max_rows)).astype(int)
    predicted = dense(X[sample]) @ coef.transpose(0, 2, 1) + intercept[:, None]
    return np.asarray(predicted.var(axis=0, ddof=1).mean(axis=0))
