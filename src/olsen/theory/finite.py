r"""Expected risk at finite n, p and k: identity covariance, Gaussian rows, uniformly drawn columns.

For two members that share :math:`a` columns, with :math:`u` columns in neither, every fixed signal
obeys

.. math:: bias_{ij} = \|\beta_{(S_i\cup S_j)^c}\|^2 (1+v), \qquad var_{ij} = \sigma^2 v, \qquad v = \frac{a}{n-a-1}

(all rows in use; :math:`i=j` is :math:`a = m`). The expected risk is the average of the two terms
over the distribution of :math:`(a, u)` that the sampling and the design imply. The average is a sum
without approximation.
"""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import _coin_rows, _distributions
from ._arguments import (
    EXPECTED_COLUMNS,
    LETTERS,
    Floats,
    checked,
    letters,
    require,
    require_at_most,
    require_choice,
)
from ._distributions import Overlaps, PairTerms
from ._pairs import group_fractions, mean_of_pairs, rescale, times_square

SAMPLINGS = ("fixed", "bernoulli")
DESIGNS = ("independent", "balanced")
MAX_EXACT_COIN_COLUMNS = 10_000  # up to which pairs of rejected coin flips are summed exactly


class _Terms(NamedTuple):
    """Terms to combine, for one combination of sizes or, with arrays, for many.

    The five entries of the first axis of `bias` (unit signal) and `variance` (unit noise) are one
    member, then four kinds of pairs: of no common group, of one column group, of one row group, and
    of groups of both kinds.
    """

    bias: Floats
    variance: Floats
    column_group: Floats | int  # members in a column group
    row_group: Floats | int
    shrinkage: Floats | float  # E|S|/p


class _Averages(NamedTuple):
    """Terms of members that were drawn in one way."""

    single: PairTerms
    pairs: list[PairTerms]  # the four kinds of `_Terms`
    column_group: int
    shrinkage: float


def overlap_variance(
    n: "ArrayLike",
    overlap: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n_samples: "ArrayLike | None" = None,
    shared_rows: "ArrayLike | None" = None,
) -> "Floats":
    r"""Variance of a pair of members that share `overlap` columns.

    .. math:: \sigma^2 v, \qquad v = \frac{a\,t}{\tau^2 - (a+1)\,t}

    for members of :math:`\tau` rows (`n_samples`), :math:`t` of which are shared: Lemma 3.3 of the
    paper, equation (15), a term of the sum (11). Lemma A.1, Lemma A.2 and equation (71) are the
    steps of its proof. With all rows,
    :math:`v = a/(n-a-1)`; a member with itself is :math:`a = m,\; t = \tau`. Disjoint rows give
    zero.

    Status: exact when t = tau (all rows, or one member); heuristic otherwise, right to second order
    in 1/tau. The paper prints a/(n-a-1) for every row fraction, which is the limit only.
    Broadcasts.

    Examples
    --------
    >>> float(overlap_variance(20, 9, 1.0))
    0.9
    """
    n, a, sigma = letters(n=n, overlap=overlap, sigma=sigma)
    tau, t = _rows(n, n_samples, shared_rows)
    v = _inflation(a, tau, t)
    return sigma**2 * v


def overlap_bias(
    n: "ArrayLike",
    overlap: "ArrayLike",
    left_out: "ArrayLike",
    *,
    n_samples: "ArrayLike | None" = None,
    shared_rows: "ArrayLike | None" = None,
) -> "Floats":
    r"""Bias of a pair of members that share `overlap` columns and both miss signal of energy
    `left_out`.

    .. math:: \|\beta_{(S_i\cup S_j)^c}\|^2 (1 + v)

    with :math:`v` as in `overlap_variance`: Lemma 3.2 of the paper, equation (14), a term of the sum
    (10); its proof has the parts as (54) and (55). It holds for every fixed signal and every given
    pair, without averaging.

    Status: exact when t = tau (all rows, or one member); heuristic otherwise. Broadcasts.

    Examples
    --------
    >>> float(overlap_bias(20, 9, 0.5))
    0.95
    """
    n, a, left_out = letters(n=n, overlap=overlap, left_out=left_out)
    tau, t = _rows(n, n_samples, shared_rows)
    v = _inflation(a, tau, t)
    return left_out * (1 + v)


def _rows(
    n: Floats, n_samples: ArrayLike | None, shared_rows: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Rows per member and rows shared by two members, checked."""
    (tau,) = letters(n_samples=n if n_samples is None else n_samples)
    require_at_most("n", n, n_samples=tau)
    tau, n = np.broadcast_arrays(tau, n)
    if shared_rows is None:
        return tau, tau**2 / n
    (t,) = letters(shared_rows=shared_rows)
    is_possible = (2 * tau - n <= t) & (t <= tau)
    require(
        is_possible,
        "two members share from 2 n_samples - n to n_samples rows; got shared_rows from"
        f" {np.min(t):.6g} to {np.max(t):.6g} with n_samples = {np.max(tau):.6g}, n ="
        f" {np.min(n):.6g}.",
    )
    return tau, t


def _inflation(a: Floats, tau: Floats | float, t: Floats | float) -> Floats:
    """E tr[(A + B1)^-1 A (A + B2)^-1] for Wishart A of t rows, B1 and B2 of tau - t rows, on a
    columns.
    """
    room = tau**2 - (a + 1) * t
    require(
        room > 0,
        f"a pair with {np.max(a):.6g} shared columns needs n_samples**2 > (overlap + 1) *"
        " shared_rows for a finite expectation. For fewer rows than columns use"
        " theory.minimum_norm_risk.",
    )
    return a * t / room


def expected_bias(
    n: "ArrayLike",
    p: "ArrayLike",
    n_features: "ArrayLike",
    *,
    k: "ArrayLike",
    n_samples: "ArrayLike | None" = None,
    sampling: str = "fixed",
    design: str = "independent",
    beta_norm: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Expected bias of `k` members at finite n and p.

    .. math:: \frac{\|\beta\|^2}{k^2} \sum_{ij} E\Bigl[\frac{|(S_i\cup S_j)^c|}{p}\,(1 + v_{ij})\Bigr]

    It is the first term of equation (9) of the paper, as the sum (10). Arguments, designs and
    exceptions as in `expected_risk`.

    Status: exact with all rows, approximate for pairs that subsample rows. All numeric arguments
    broadcast.

    Examples
    --------
    >>> round(float(expected_bias(12, 8, 4, k=2)), 4)
    0.5517
    """
    k, norm = letters(k=k, beta_norm=beta_norm)
    terms = _broadcast_terms(n, p, n_features, n_samples, sampling=sampling, design=design)
    bias = _combine(terms.bias, terms, k)
    return times_square(norm, bias)


def expected_variance(
    n: "ArrayLike",
    p: "ArrayLike",
    n_features: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike",
    n_samples: "ArrayLike | None" = None,
    sampling: str = "fixed",
    design: str = "independent",
) -> "Floats":
    r"""Expected variance of `k` members at finite n and p.

    .. math:: \frac{\sigma^2}{k^2} \sum_{ij} E[v_{ij}]

    It is the second term of equation (9) of the paper, as the sum (11). Arguments, designs and
    exceptions as in `expected_risk`.

    Status: exact with all rows, approximate for pairs that subsample rows. All numeric arguments
    broadcast.

    Examples
    --------
    >>> round(float(expected_variance(12, 8, 4, 0.5**0.5, k=2)), 4)
    0.2006
    """
    k, sigma = letters(k=k, sigma=sigma)
    terms = _broadcast_terms(n, p, n_features, n_samples, sampling=sampling, design=design)
    variance = _combine(terms.variance, terms, k)
    return times_square(sigma, variance)


def expected_risk(
    n: "ArrayLike",
    p: "ArrayLike",
    n_features: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike",
    n_samples: "ArrayLike | None" = None,
    sampling: str = "fixed",
    design: str = "independent",
    mu: "ArrayLike" = 1.0,
    beta_norm: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Expected risk of `k` members at finite n and p.

    .. math:: E R_k = \frac1k R_{diag} + \frac{N_{same}}{k^2} R_{same}
              + \Bigl(1 - \frac1k - \frac{N_{same}}{k^2}\Bigr) R_{off}

    where each :math:`R` averages :math:`\frac up (1+v)\|\beta\|^2 + \sigma^2 v` over the
    distribution of the shared columns :math:`a` and the columns :math:`u` outside both members:
    hypergeometric for fixed sizes (:math:`u = p-2m+a`), binomial for coin flips.

    Parameters
    ----------
    n, p : int
        Rows and columns of the data.
    n_features : int
        Columns per member; for ``sampling="bernoulli"`` the expected number, a real number being
        allowed.
    sigma : float
        Noise standard deviation.
    k : int or inf
        Members.
    n_samples : int, optional
        Rows per member; for ``sampling="bernoulli"`` the expected number of coin-flip rows.
        Default: all.
    sampling : {"fixed", "bernoulli"}
        Subsets of fixed size, or one coin per column (and row), a member being redrawn unless it
        has at least two rows more than columns (the paper's rejection rule).
    design : {"independent", "balanced"}
        ``"balanced"``, fixed sizes: a permutation is cut into ``B = p // min(m, p - m)`` disjoint
        blocks, each block being a member when ``m <= p / 2`` and the complement of a member
        otherwise. Coin flips: one uniform
        :math:`U_j` per column and group, member `b` of ``B = floor(1 / min(alpha, 1 - alpha))`` takes `j` iff
        :math:`(U_j + b/B) \bmod 1 < \alpha`. Member `i` is in group ``i // B``; the last group may be partial. Rows are
        drawn like columns, in groups of ``n // min(n_samples, n - n_samples)``.
    mu : float
        Scale of the average (`theory.scaled_risk`).
    beta_norm : float
        Norm of the signal.

    Notes
    -----
    Status: exact for ``n_samples=None``; with row subsampling the pairs use the refined
    approximation of `overlap_variance`, averaged over the hypergeometric number of shared rows; the
    single member stays exact. Coin flips with a rejection probability above 1e-13: members exact;
    pairs conditioned on the acceptance of both, where a rejected member of a balanced group is
    replaced by an independent one: exactly up to ten thousand columns, with some of the sizes and
    two values for the overlap of given sizes above that number. Coin-flip rows: accepted together
    with the columns. The distribution of a pair's columns is exact up to p of about 125, with two
    values for the overlap of given sizes beyond; its inflation v is taken at the mean number of
    rows, or at two more than the shared columns if that is more. Whatever v, the risk is at least
    :math:`(1-\delta)^2\|\beta\|^2`, :math:`\delta` being the mean fraction of the columns in a member, and at no scale
    negative.
    ``inf`` for fixed sizes within one of `n_samples`, where the expectation is infinite.

    Examples
    --------
    >>> round(float(expected_risk(12, 8, 4, 0.5**0.5, k=2)), 4)
    0.7523
    >>> expected_risk(60, 48, [12, 16], [0.5, 1.0], k=12, design="balanced").round(4)
    array([0.6136, 0.6056])
    """
    k, sigma, mu, norm = letters(k=k, sigma=sigma, mu=mu, beta_norm=beta_norm)
    terms = _broadcast_terms(n, p, n_features, n_samples, sampling=sampling, design=design)
    bias = _combine(terms.bias, terms, k)
    variance = _combine(terms.variance, terms, k)
    risk = times_square(norm, bias) + times_square(sigma, variance)
    return rescale(risk, terms.shrinkage, mu, norm)


def _combine(five: Floats, terms: _Terms, k: Floats) -> Floats:
    """Mean over all ordered pairs, with separate terms for pairs within a group of the design."""
    single, ungrouped, *grouped = five
    mean = mean_of_pairs(single, ungrouped, k)
    fractions = group_fractions(k, terms.column_group, terms.row_group)
    for fraction, term in zip(fractions, grouped, strict=True):
        with np.errstate(invalid="ignore"):
            change = fraction * (term - ungrouped)
            mean = mean + np.where(fraction > 0, change, 0.0)
    return mean


def _broadcast_terms(
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    n_samples: ArrayLike | None,
    *,
    sampling: str,
    design: str,
) -> _Terms:
    """`_terms` for every element of the broadcast of the sizes."""
    require_choice("sampling", sampling, SAMPLINGS)
    require_choice("design", design, DESIGNS)
    n, p, tau = letters(n=n, p=p, n_samples=n if n_samples is None else n_samples)
    columns = LETTERS["n_features"] if sampling == "fixed" else EXPECTED_COLUMNS
    m = checked("n_features", n_features, columns)
    require_at_most("n", n, n_samples=tau)
    require_at_most("p", p, n_features=m)
    sizes = np.broadcast(n, p, m, tau)
    terms = [
        _terms(int(n), int(p), float(m), int(tau), sampling=sampling, design=design)
        for n, p, m, tau in sizes
    ]
    fields = []
    for values in zip(*terms, strict=True):
        field = np.moveaxis(np.array(values), 0, -1)  # the combinations of sizes last
        fields.append(field.reshape(field.shape[:-1] + sizes.shape))
    return _Terms(*fields)


def _terms(n: int, p: int, m: float, tau: int, *, sampling: str, design: str) -> _Terms:
    """Terms for one combination of sizes."""
    _check_sizes(m, tau, sampling=sampling)
    if sampling == "fixed" and tau - 1 <= m <= tau + 1:
        infinite = np.full(5, inf)
        bias = infinite if m < p else np.zeros(5)
        return _Terms(bias, infinite, column_group=1, row_group=1, shrinkage=m / p)
    if sampling == "fixed":
        averages = _fixed_averages(n, p, int(m), tau, design=design)
    else:
        averages = _coin_averages(n, p, m, tau, design=design)
    bias, variance = np.transpose([averages.single, *averages.pairs])
    row_group = n // max(1, min(tau, n - tau)) if design == "balanced" and tau < n else 1
    return _Terms(bias, variance, averages.column_group, row_group, averages.shrinkage)


def _check_sizes(m: float, tau: int, *, sampling: str) -> None:
    """Raise where members have more columns than least squares on their rows allows."""
    if sampling == "bernoulli":
        require(tau >= 2, f"coin flips with rejection need n_samples >= 2; got {tau}.")
        return
    require(
        m <= tau + 1,
        "n_features must be at most n_samples - 2 (more rows than columns per member); got"
        f" n_features = {m:g}, n_samples = {tau}. For minimum-norm members use"
        " theory.minimum_norm_risk.",
    )


def _fixed_averages(n: int, p: int, m: int, tau: int, *, design: str) -> _Averages:
    """Members of m columns each."""
    itself = Overlaps(np.array([m]), np.ones(1), np.array([p - m]))
    single = _average(p, itself, m / (tau - m - 1))
    min_overlap = max(0, 2 * m - p)
    max_in_neither = p - 2 * m + min_overlap
    grouped = Overlaps(np.array([min_overlap]), np.ones(1), np.array([max_in_neither]))
    a, weights = _distributions.hypergeometric(p, m, m)
    ungrouped = Overlaps(a, weights, p - 2 * m + a)
    pairs = _average_pairs(n, p, tau, ungrouped=ungrouped, grouped=grouped)
    block = max(1, min(m, p - m))
    column_group = p // block if design == "balanced" else 1
    return _Averages(single, pairs, column_group, shrinkage=m / p)


def _coin_averages(n: int, p: int, m: float, tau: int, *, design: str) -> _Averages:
    """Members that flip coins and expect m columns.

    Members that may be rejected are summed by size when rows are flipped too, or when there are
    very many columns.
    """
    alpha = m / p
    members = _coin_rows.member_terms(n, p, alpha, tau / n)
    may_be_rejected = members.accepted < 1 - _distributions.NEGLIGIBLE
    if may_be_rejected and (tau < n or p > MAX_EXACT_COIN_COLUMNS):
        inflations = [_coin_inflation(n, tau, row_design) for row_design in DESIGNS]
        pairs = _coin_rows.pair_terms(n, p, alpha, tau / n, inflations=inflations)
    else:
        ungrouped, grouped = _coin_overlaps(p, alpha, tau - 2, design)
        pairs = _average_pairs(n, p, tau, ungrouped=ungrouped, grouped=grouped)
    column_group = 1
    smaller = min(alpha, 1 - alpha)
    if design == "balanced" and smaller > 0:
        column_group = int(1 / max(smaller, 2.0**-53) + 1e-9)
    return _Averages(members.terms, pairs, column_group, members.shrinkage)


def _average_pairs(
    n: int, p: int, tau: int, *, ungrouped: Overlaps, grouped: Overlaps
) -> list[PairTerms]:
    """Terms of the four kinds of pairs of `_Terms`, from overlaps without and with a column
    group.
    """
    averages = []
    for row_design in DESIGNS:
        for overlaps in (ungrouped, grouped):
            v = _mean_inflation(overlaps.values, n, tau, row_design)
            averages.append(_average(p, overlaps, v))
    return averages


def _average(p: int, overlaps: Overlaps, v: Floats | float) -> PairTerms:
    """Terms of a pair of inflation v for each overlap, averaged over the overlaps."""
    fraction_in_neither = overlaps.in_neither / p
    bias = overlaps.weights @ (fraction_in_neither * (1 + v))
    variance = np.sum(overlaps.weights * v)
    return PairTerms(float(bias), float(variance))


def _mean_inflation(a: ArrayLike, n: int, tau: int, row_design: str) -> Floats:
    """Inflation v for each overlap, averaged over the number of shared rows: the fewest possible in
    a row group.
    """
    a = np.asarray(a, dtype=float)
    if tau == n or row_design == "balanced":
        return _inflation(a, tau, max(0, 2 * tau - n))
    mean = np.zeros(len(a))
    for t, weight in zip(*_distributions.shared_rows(n, tau), strict=True):
        mean += weight * _inflation(a, tau, t)
    return mean


def _coin_inflation(n: int, tau: int, row_design: str) -> _coin_rows.Inflation:
    """Inflation v with coin-flip rows, as a function of the number of shared columns.

    It is taken at the mean number of rows, or at two more than the shared columns if that is more.
    """

    def inflation(a: Floats) -> Floats:
        max_overlap = min(n - 2, int(np.max(a)) + 1)
        overlaps = np.arange(max_overlap + 1)
        below_mean = overlaps <= tau - 2
        at_mean_rows = _mean_inflation(overlaps[below_mean], n, tau, row_design)
        at_more_rows = [
            _mean_inflation([x], n, x + 2, row_design)[0] for x in overlaps[~below_mean].tolist()
        ]
        v: Floats = np.interp(a, overlaps, [*at_mean_rows, *at_more_rows])
        return v

    return inflation


def _coin_overlaps(p: int, alpha: float, max_size: int, design: str) -> tuple[Overlaps, Overlaps]:
    """Overlaps of two members of different groups, and of one group; sizes above `max_size` are
    drawn again.
    """
    ungrouped, _ = _distributions.coin_pair(p, alpha**2, alpha * (1 - alpha), max_size)
    if design == "independent":
        return ungrouped, ungrouped
    p_shared = max(0.0, 2 * alpha - 1)
    grouped, p_both_accepted = _distributions.coin_pair(p, p_shared, alpha - p_shared, max_size)
    p_accepted = float(_distributions.at_most(max_size, p, alpha))
    p_one_redrawn = 2 * (p_accepted - p_both_accepted)
    if p_one_redrawn > _distributions.NEGLIGIBLE:
        replaced = _distributions.replaced_pair(p, alpha, max_size)
        grouped = _distributions.mixture(grouped, p_both_accepted, replaced, p_one_redrawn)
    return ungrouped, grouped
