r"""Expected risk at finite n, p and k: identity covariance, Gaussian rows, uniformly drawn columns.

For two members that share :math:`a` columns and leave :math:`u` columns to neither, every fixed signal obeys

.. math:: bias_{ij} = \|\beta_{(S_i\cup S_j)^c}\|^2 (1+v), \qquad var_{ij} = \sigma^2 v, \qquad v = \frac{a}{n-a-1}

(all rows in use; :math:`i=j` is :math:`a = m`). The expected risk is the average of these over the distribution of
:math:`(a, u)` that the sampling and the design imply, and that is summed, not approximated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import _coin_rows, _distributions
from ._arguments import EXPECTED_COLUMNS, Floats, checked, letters, require, require_choice, scalar
from ._distributions import Numbers, Overlaps
from ._pairs import group_fractions, mean_of_pairs, rescale, times_square

SAMPLINGS = ("fixed", "bernoulli")
DESIGNS = ("independent", "balanced")


class _Terms(NamedTuple):
    """What the combination needs; bias for unit signal and variance for unit noise, each of shape (5, ...).

    The five: one member; a pair of no common group; of one column group; of one row group; of both.
    """

    bias: Floats
    variance: Floats
    column_group: Numbers
    row_group: Numbers
    shrinkage: Floats


def overlap_variance(
    n: ArrayLike,
    overlap: ArrayLike,
    sigma: ArrayLike,
    *,
    n_samples: ArrayLike | None = None,
    shared_rows: ArrayLike | None = None,
) -> Floats:
    r"""Variance of a pair of members that share `overlap` columns.

    .. math:: \sigma^2 v, \qquad v = \frac{a\,t}{\tau^2 - (a+1)\,t}

    with :math:`\tau` rows each (`n_samples`) of which :math:`t` are shared. With all rows, :math:`v = a/(n-a-1)`;
    a member with itself is :math:`a = m,\; t = \tau`. Disjoint rows give zero.

    Status: exact when t = tau (all rows, or one member); heuristic otherwise, right to second order in 1/tau. The
    paper prints a/(n-a-1) for every row fraction, which is the limit only. Broadcasts.

    Examples
    --------
    >>> float(overlap_variance(20, 9, 1.0))
    0.9
    """
    n, a, sigma = letters("overlap_variance", n=n, overlap=overlap, sigma=sigma)
    tau, t = _rows("overlap_variance", n, n_samples, shared_rows)
    return (sigma**2 * _inflation(a, tau, t))[()]


def overlap_bias(
    n: ArrayLike,
    overlap: ArrayLike,
    left_out: ArrayLike,
    *,
    n_samples: ArrayLike | None = None,
    shared_rows: ArrayLike | None = None,
) -> Floats:
    r"""Bias of a pair of members that share `overlap` columns and both miss signal of energy `left_out`.

    .. math:: \|\beta_{(S_i\cup S_j)^c}\|^2 (1 + v)

    with :math:`v` as in `overlap_variance`. True for every fixed signal and every given pair, no averaging.

    Status: exact when t = tau (all rows, or one member); heuristic otherwise. Broadcasts.

    Examples
    --------
    >>> float(overlap_bias(20, 9, 0.5))
    0.95
    """
    n, a, left_out = letters("overlap_bias", n=n, overlap=overlap, left_out=left_out)
    tau, t = _rows("overlap_bias", n, n_samples, shared_rows)
    return (left_out * (1 + _inflation(a, tau, t)))[()]


def _rows(
    function: str, n: Floats, n_samples: ArrayLike | None, shared_rows: ArrayLike | None
) -> tuple[Floats, Floats]:
    tau = n if n_samples is None else letters(function, n_samples=n_samples)[0]
    require(tau <= n, f"{function}: n_samples ({np.max(tau):.6g}) cannot exceed n ({np.min(n):.6g}).")
    tau = np.broadcast_to(tau, np.broadcast_shapes(tau.shape, n.shape))
    if shared_rows is None:
        return tau, tau**2 / n
    (shared,) = letters(function, shared_rows=shared_rows)
    require(
        (2 * tau - n <= shared) & (shared <= tau),
        f"{function}: two members share from 2 n_samples - n to n_samples rows; got shared_rows from "
        f"{np.min(shared):.6g} to {np.max(shared):.6g} with n_samples = {np.max(tau):.6g}, n = {np.min(n):.6g}.",
    )
    return tau, shared


def _inflation(a: Floats, tau: Floats | float, t: Floats | float) -> Floats:
    """E tr[(A + B1)^-1 A (A + B2)^-1] for Wishart A of t rows, B1 and B2 of tau - t rows, on a columns."""
    room = tau**2 - (a + 1) * t
    require(
        room > 0,
        f"a pair with {np.max(a):.6g} shared columns needs n_samples**2 > (overlap + 1) * shared_rows for a finite "
        "expectation. For fewer rows than columns use theory.minimum_norm_risk.",
    )
    return a * t / room


def expected_bias(
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    *,
    k: ArrayLike,
    n_samples: ArrayLike | None = None,
    sampling: str = "fixed",
    design: str = "independent",
    beta_norm: ArrayLike = 1.0,
) -> Floats:
    r"""Expected bias of `k` members at finite n and p.

    .. math:: \frac{\|\beta\|^2}{k^2} \sum_{ij} E\Bigl[\frac{|(S_i\cup S_j)^c|}{p}\,(1 + v_{ij})\Bigr]

    Arguments, designs and exceptions as in `expected_risk`.

    Status: exact with all rows, approximate for pairs that subsample rows. All numeric arguments broadcast.

    Examples
    --------
    >>> round(float(expected_bias(12, 8, 4, k=2)), 4)
    0.5517
    """
    terms = _broadcast_terms("expected_bias", n, p, n_features, n_samples, sampling, design)
    k, norm = letters("expected_bias", k=k, beta_norm=beta_norm)
    return times_square(norm, _combine(terms.bias, terms, k))[()]


def expected_variance(
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    sigma: ArrayLike,
    *,
    k: ArrayLike,
    n_samples: ArrayLike | None = None,
    sampling: str = "fixed",
    design: str = "independent",
) -> Floats:
    r"""Expected variance of `k` members at finite n and p.

    .. math:: \frac{\sigma^2}{k^2} \sum_{ij} E[v_{ij}]

    Arguments, designs and exceptions as in `expected_risk`.

    Status: exact with all rows, approximate for pairs that subsample rows. All numeric arguments broadcast.

    Examples
    --------
    >>> round(float(expected_variance(12, 8, 4, 0.5**0.5, k=2)), 4)
    0.2006
    """
    terms = _broadcast_terms("expected_variance", n, p, n_features, n_samples, sampling, design)
    k, sigma = letters("expected_variance", k=k, sigma=sigma)
    return times_square(sigma, _combine(terms.variance, terms, k))[()]


def expected_risk(
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    sigma: ArrayLike,
    *,
    k: ArrayLike,
    n_samples: ArrayLike | None = None,
    sampling: str = "fixed",
    design: str = "independent",
    mu: ArrayLike = 1.0,
    beta_norm: ArrayLike = 1.0,
) -> Floats:
    r"""Expected risk of `k` members at finite n and p.

    .. math:: E R_k = \frac1k R_{diag} + \frac{N_{same}}{k^2} R_{same}
              + \Bigl(1 - \frac1k - \frac{N_{same}}{k^2}\Bigr) R_{off}

    where each :math:`R` averages :math:`\frac up (1+v)\|\beta\|^2 + \sigma^2 v` over the distribution of the shared
    columns :math:`a` and the columns :math:`u` outside both members: hypergeometric for fixed sizes
    (:math:`u = p-2m+a`), binomial for coin flips.

    Parameters
    ----------
    n, p : int
        Rows and columns of the data.
    n_features : int
        Columns per member; for ``sampling="bernoulli"`` the expected number, a real number being allowed.
    sigma : float
        Noise standard deviation.
    k : int or inf
        Members.
    n_samples : int, optional
        Rows per member; for ``sampling="bernoulli"`` the expected number of coin-flip rows. Default: all.
    sampling : {"fixed", "bernoulli"}
        Subsets of fixed size, or one coin per column (and row), a member being redrawn unless it has at least two
        rows more than columns (the paper's rejection rule).
    design : {"independent", "balanced"}
        ``"balanced"``, fixed sizes: a permutation is cut into ``B = p // min(m, p - m)`` disjoint blocks, each block
        being a member when ``m <= p / 2`` and the complement of a member otherwise. Coin flips: one uniform
        :math:`U_j` per column and group, member `b` of ``B = floor(1 / min(alpha, 1 - alpha))`` takes `j` iff
        :math:`(U_j + b/B) \bmod 1 < \alpha`. Member `i` is in group ``i // B``; the last group may be partial. Rows are
        drawn like columns, in groups of ``n // min(n_samples, n - n_samples)``.
    mu : float
        Scale of the average (`theory.scaled_risk`).
    beta_norm : float
        Norm of the signal.

    Notes
    -----
    Status: exact for ``n_samples=None``; with row subsampling the pairs use the refined approximation of
    `overlap_variance`, averaged over the hypergeometric number of shared rows; the single member stays exact.
    Coin flips with a rejection probability above 1e-13: members exact; pairs conditioned on the acceptance of both,
    where a rejected member of a balanced group is replaced by an independent one: exactly up to ten thousand columns,
    with some of the sizes and two values for the overlap of given sizes beyond.
    Coin-flip rows: accepted together with the columns. The distribution of a pair's columns is exact up to p of about
    125, with two values for the overlap of given sizes beyond; its inflation v is taken at the mean number of rows, or
    at two more than the shared columns if that is more. Whatever v, the risk is at least
    :math:`(1-\delta)^2\|\beta\|^2`, :math:`\delta` being the mean share of the columns in a member, and at no scale
    negative.
    ``inf`` for fixed sizes within one of `n_samples`, where the expectation is infinite.

    Examples
    --------
    >>> round(float(expected_risk(12, 8, 4, 0.5**0.5, k=2)), 4)
    0.7523
    >>> expected_risk(60, 48, [12, 16], [0.5, 1.0], k=12, design="balanced").round(4)
    array([0.6136, 0.6056])
    """
    terms = _broadcast_terms("expected_risk", n, p, n_features, n_samples, sampling, design)
    k, sigma, mu, norm = letters("expected_risk", k=k, sigma=sigma, mu=mu, beta_norm=beta_norm)
    bias = times_square(norm, _combine(terms.bias, terms, k))
    risk = bias + times_square(sigma, _combine(terms.variance, terms, k))
    return rescale(risk, terms.shrinkage, mu, norm)[()]


def optimal_n_features(
    n: int, p: int, sigma: float, *, k: float, n_samples: int | None = None, design: str = "independent"
) -> int:
    r"""The fixed size with the lowest `expected_risk`.

    .. math:: \arg\min_{1 \le m \le \min(p,\, \tau-2)} E R_k(m)

    Scans 65 sizes, then again between the neighbours of the best, until every size in between was seen.

    Status: exact risk; the scan is heuristic for curves with several minima. Scalars only.

    Examples
    --------
    >>> optimal_n_features(60, 48, 1.0, k=12)
    20
    """
    tau = n if n_samples is None else n_samples
    for name, value in (("n", n), ("p", p), ("sigma", sigma), ("k", k), ("n_samples", tau)):
        scalar("optimal_n_features", name, value)
    require_choice("design", design, DESIGNS)
    top = min(p, tau - 2)
    require(top >= 1, f"optimal_n_features needs min(p, n_samples - 2) >= 1; got {top}.")
    low, high = 1, top
    while True:
        sizes = np.unique(np.linspace(low, high, 65).round().astype(int))
        best = int(np.argmin(expected_risk(n, p, sizes, sigma, k=k, n_samples=n_samples, design=design)))
        if len(sizes) == high - low + 1:
            return int(sizes[best])
        low, high = int(sizes[max(best - 1, 0)]), int(sizes[min(best + 1, len(sizes) - 1)])


def _combine(five: Floats, terms: _Terms, k: Floats) -> Floats:
    """Mean over all ordered pairs, counting those inside the groups of the design apart."""
    own, other, *grouped = five
    mean = mean_of_pairs(own, other, k)
    for share, same in zip(group_fractions(k, terms.column_group, terms.row_group), grouped, strict=True):
        with np.errstate(invalid="ignore"):
            mean = mean + np.where(share > 0, share * (same - other), 0.0)
    return mean


def _broadcast_terms(
    function: str,
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    n_samples: ArrayLike | None,
    sampling: str,
    design: str,
) -> _Terms:
    """`_terms` for every element of the broadcast of the sizes."""
    require_choice("sampling", sampling, SAMPLINGS)
    require_choice("design", design, DESIGNS)
    letters(function, n=n, p=p, n_samples=n if n_samples is None else n_samples)
    checked(function, "n_features", n_features, EXPECTED_COLUMNS)  # whole for fixed sizes: `_check_sizes`
    sizes = np.broadcast_arrays(n, p, n_features, n if n_samples is None else n_samples)
    each = zip(*(size.ravel().tolist() for size in sizes), strict=True)
    values = [_terms(function, n, p, m, tau, sampling, design) for n, p, m, tau in each]
    fields = [np.moveaxis(np.array(field), 0, -1) for field in zip(*values, strict=True)]
    return _Terms(*(field.reshape(field.shape[:-1] + sizes[0].shape) for field in fields))


def _terms(
    function: str, n: int, p: int, m: float, tau: float, sampling: str, design: str
) -> tuple[Floats, Floats, float, float, float]:
    _check_sizes(function, n, p, m, tau, sampling)
    if sampling == "fixed" and tau - 1 <= m <= tau + 1:
        return np.full(5, np.inf if m < p else 0.0), np.full(5, np.inf), 1, 1, m / p
    row_group = n // max(1, min(tau, n - tau)) if design == "balanced" and tau < n else 1
    of_sampling = _fixed_terms if sampling == "fixed" else _coin_terms
    own, pairs, group, shrinkage = of_sampling(int(n), int(p), m, tau, design)
    bias, variance = np.transpose([own, *pairs])
    return bias, variance, group, row_group, shrinkage


def _fixed_terms(n: int, p: int, m: float, tau: float, design: str) -> tuple[Any, list[Any], int, float]:
    """Bias and variance of one member and of pairs (`_pair_averages`), group size, E|S|/p."""
    m = int(m)
    own = _average(p, (np.array([m]), np.ones(1), np.array([p - m])), m / (tau - m - 1))
    least = max(0, 2 * m - p)
    same = (np.array([least]), np.ones(1), np.array([p - 2 * m + least]))
    a, weight = _distributions.hypergeometric(p, m, m)
    group = p // max(1, min(m, p - m)) if design == "balanced" else 1
    return own, _pair_averages(n, p, tau, (a, weight, p - 2 * m + a), same), group, m / p


def _coin_terms(n: int, p: int, m: float, tau: float, design: str) -> tuple[Any, list[Any], int, float]:
    """The same for coin flips: by sizes where rows are flipped too and members rejected, or columns very many."""
    alpha = m / p
    *own, shrinkage, accepted = _coin_rows.member_terms(n, p, alpha, tau / n)
    if accepted < 1 - _distributions.NEGLIGIBLE and (tau < n or p > 10_000):
        pairs = _coin_rows.pair_terms(n, p, alpha, tau / n, [_coin_inflation(n, tau, rows) for rows in DESIGNS])
    else:
        pairs = _pair_averages(n, p, tau, *_coin_overlaps(p, alpha, int(tau) - 2, design))
    smaller = min(alpha, 1 - alpha)
    group = int(1 / max(smaller, 2.0**-53) + 1e-9) if design == "balanced" and smaller > 0 else 1
    return own, pairs, group, shrinkage


def _pair_averages(n: int, p: int, tau: float, other: Overlaps, same: Overlaps) -> list[tuple[float, float]]:
    """Pairs of no common group, of one column group, of one row group, of both."""
    return [_average(p, pair, _mean_inflation(pair[0], n, tau, rows)) for rows in DESIGNS for pair in (other, same)]


def _check_sizes(function: str, n: int, p: int, m: float, tau: float, sampling: str) -> None:
    require(0 < tau <= n, f"{function}: n_samples must be in [1, n]; got n_samples = {tau}, n = {n}.")
    require(0 <= m <= p, f"{function}: n_features must be in [0, p]; got n_features = {m}, p = {p}.")
    if sampling == "bernoulli":
        require(tau >= 2, f"{function}: coin flips with rejection need n_samples >= 2; got {tau}.")
        return
    require(m == int(m), f"{function}: fixed sizes are whole numbers; got n_features = {m}. Or sampling='bernoulli'.")
    require(
        m <= tau + 1,
        f"{function} needs n_features <= n_samples - 2 (more rows than columns per member); got n_features = {m}, "
        f"n_samples = {tau}. For minimum-norm members use theory.minimum_norm_risk.",
    )


def _average(p: int, overlaps: Overlaps, inflation: Floats | float) -> tuple[float, float]:
    """Bias (unit signal) and variance (unit noise) of a pair."""
    _, weight, outside = overlaps
    return float(weight @ (outside / p * (1 + inflation))), float(np.sum(weight * inflation))


def _mean_inflation(a: ArrayLike, n: int, tau: float, rows: str) -> Floats:
    """Inflation v for each overlap, averaged over the rows two members share: the fewest possible in a row group."""
    a = np.asarray(a, dtype=float)
    if tau == n or rows == "balanced":
        return _inflation(a, tau, max(0, 2 * tau - n))
    t, weight = _distributions.thin(*_distributions.hypergeometric(int(n), int(tau), int(tau)))
    total = np.zeros(len(a))
    for shared, mass in zip(t, weight, strict=True):
        total += mass * _inflation(a, tau, shared)
    return total


def _coin_inflation(n: int, tau: float, rows: str) -> _coin_rows.Inflation:
    """Inflation v with coin-flip rows: at their mean number, or at two more than the shared columns if that is more."""

    def inflation(a: Floats) -> Floats:
        shared = np.arange(min(n - 2, int(np.max(a)) + 1) + 1)
        few = shared <= tau - 2
        more = [_mean_inflation([count], n, count + 2, rows)[0] for count in shared[~few].tolist()]
        v: Floats = np.interp(a, shared, [*_mean_inflation(shared[few], n, tau, rows), *more])
        return v

    return inflation


def _coin_overlaps(p: int, alpha: float, most: int, design: str) -> tuple[Overlaps, Overlaps]:
    """Of two members of different groups, and of one group, sizes above `most` being drawn again."""
    other, _ = _distributions.coin_pair(p, alpha**2, alpha * (1 - alpha), most)
    if design == "independent":
        return other, other
    both = max(0.0, 2 * alpha - 1)
    same, accepted = _distributions.coin_pair(p, both, alpha - both, most)
    once = 2 * (float(_distributions.at_most(most, p, alpha)) - accepted)  # exactly one of the two is drawn again
    if once > _distributions.NEGLIGIBLE:
        same = _distributions.mixture(same, accepted, _distributions.replaced_pair(p, alpha, most), once)
    return other, same
