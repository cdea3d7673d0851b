r"""Leave-one-out from some of the rows, where there are so many that all of them would cost more than they tell.

Generalised cross-validation needs the moments of all rows and no row; it errs where rows have unequal leverages.
Leave-one-out minus GCV, on the same members and rows, is small for most rows, so a few of them know its mean well: a
control variate. Rows far out, which can make up most of it, are all taken; of the others a random sample L stands for
all.

.. math:: \widehat R = R^{\mathrm{gcv}}_{\text{all rows}}
          + \frac{1}{n} \Bigl( \sum_{l \text{ far}} d_l + \frac{n - n_{\text{far}}}{|L|} \sum_{l \in L} d_l \Bigr),
          \qquad d_l = e_l^2 - \Bigl(\frac{r_l}{1 - \mathrm{df}/n}\Bigr)^2

Status: unbiased for leave-one-out over all rows, given the members; the standard error of the sample is reported. But
for one look at every row the cost does not grow with n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.pair_sums import Pairs, Sums, sum_trusted
from .._members.path import Laid
from .._members.problem import Problem
from .._moments import Moments
from .curve import PairSums, RiskCurve
from .folds import moment_gcv_products
from .paths import Paths

__all__ = ["Sampled", "sampled_leave_one_out"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FAR, ROWS = 1024, 1024  # rows furthest out, and rows in the sample of the others
SAMPLE = 4  # stream of the seed
BLOCK = 1 << 16  # entries looked at together


@dataclass(frozen=True)
class Sampled:
    """A risk curve, and the standard error of what the sample of rows has added to it, (sizes,)."""

    curve: RiskCurve
    sampling_error: Array


def sampled_leave_one_out(problem: Problem, sizes: Indices, paths: Paths, scale: float) -> Sampled | None:
    """The curve of uniform members times a scale; None where no member is to be trusted with its Gram matrix."""
    n, p = problem.shape
    moments = problem.moments_by(paths.mapper)
    rows, times = _chosen(problem, moments, paths.seed, paths.mapper)
    laid = Laid.sample(problem, moments, rows)
    pairs = Pairs.nested(paths.orders(p, 0, paths.min_batches), sizes)
    own_rows = sum_trusted(laid, laid.rows, pairs, paths.mapper)
    others = replace(laid.rows, own=False, share=np.zeros_like(laid.rows.share))
    as_others = sum_trusted(laid, others, pairs, paths.mapper)
    if own_rows is None or as_others is None:
        return None
    (left_out, count, unknown), (plain, _, _) = own_rows, as_others
    # of a row left out the mean is that of the others
    deviation = laid.rows.Y[: len(rows)] / laid.rows.root[: len(rows), None]
    share = laid.rows.share[: len(rows), None]
    exact = _row_products(left_out, count, deviation / (1 - share), scale)
    df = (sizes + problem.fit_intercept) / n
    rough = _row_products(plain, count, deviation, scale) / ((1 - scale * df) ** 2)[None, :, None]
    weight = times * (np.ones(len(rows)) if problem.weight is None else problem.weight[rows]) / moments.weight
    change = np.where(unknown, 0.0, exact - rough) * weight  # (3, sizes, rows)
    gcv = moment_gcv_products(moments, sizes, paths, scale)
    own, same, other = (all_rows + some[:, None] for all_rows, some in zip(gcv, change.sum(axis=2), strict=True))
    spread = np.std(change[2][:, times > 1], axis=1) if np.any(times > 1) else np.zeros(len(sizes))
    error = spread * np.sqrt(np.sum(times > 1))
    empty = np.zeros((len(sizes), 0, problem.Y.shape[1]))
    return Sampled(RiskCurve.from_pairs(sizes, p, paths.design, np.ones(1), own, same, other, empty), error)


def _chosen(problem: Problem, moments: Moments, seed: int, mapper: Sharing) -> tuple[Indices, Array]:
    """Rows far out and a sample of the others, ascending, and how many rows each stands for."""
    n = problem.shape[0]
    if n <= FAR + ROWS:
        return np.arange(n), np.ones(n)
    order = np.argpartition(-_distances(problem, moments, mapper), FAR)
    far, others = order[:FAR], np.sort(order[FAR:])
    some = np.random.default_rng([seed, SAMPLE]).permutation(len(others))[:ROWS]
    times = np.zeros(n)
    times[far], times[others[some]] = 1.0, len(others) / ROWS
    rows = np.flatnonzero(times)
    return rows, times[rows]


def _distances(problem: Problem, moments: Moments, mapper: Sharing) -> Array:
    """Weighted squared distance of every row from the means, in units of the columns' spread."""
    n, p = problem.shape
    unit = np.where(np.diagonal(moments.G) > 0, np.diagonal(moments.G), np.inf)
    out = np.empty(n)
    X = sp.csr_array(problem.X) if sp.issparse(problem.X) else problem.X
    step = max(1, BLOCK // p)

    def look(first: int, last: int) -> None:
        for start in range(first * step, min(last * step, n), step):
            here = slice(start, start + step)
            part = X[here].toarray() if sp.issparse(X) else X[here]
            centred = part - moments.mean_x if problem.fit_intercept else part
            out[here] = (centred * centred) @ (1 / unit)

    mapper.quiet()(look, -(-n // step))
    return out if problem.weight is None else out * problem.weight


def _row_products(sums: Sums, count: int, deviation: Array, scale: float) -> Array:
    """A, S and C of members times a scale, at every row, averaged over targets: (3, sizes, rows)."""
    pairs = PairSums(sums.total, sums.square, sums.pair_square, count)
    own, same, other = (a.mean(axis=2) for a in pairs.pair_means())
    residual = np.asarray(sums.total) / (2 * count)
    square = (1 - scale) ** 2 * np.mean(deviation**2, axis=1)
    cross = 2 * scale * (1 - scale) * np.mean(deviation * residual, axis=2)
    return np.stack([square + cross + scale**2 * a for a in (own, same, other)])
