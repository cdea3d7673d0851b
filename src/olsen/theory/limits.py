r"""Limits of large problems: n, p to infinity with p / n -> gamma, identity covariance, unit-norm
signal.

Letters as in the paper: :math:`\alpha = |S_i|/p`, :math:`\eta = |T_i|/n`, `k` members, noise
`sigma`. Below the interpolation peak (:math:`\alpha\gamma < \eta`) members are ordinary least
squares and the formulas are the paper's theorem; above it they are minimum-norm interpolators. With
:math:`\delta = \min(\alpha, \eta/\gamma)` two different members follow one formula on both sides.
For a signal of norm r use sigma / r and multiply by r**2.

Members may have a ridge penalty `lam`, which is :math:`\lambda/n`. Then :math:`\delta = \alpha d`,
where :math:`d = 1/(1+\mu)` is the shrinkage within a member and :math:`\mu` its effective penalty:
:math:`\lambda/n = \mu(\eta - \alpha\gamma d)`. Without penalty d = 1 below the peak.
"""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._arguments import Floats, letters, require, require_choice
from ._pairs import mean_of_pairs, rescale, times_square
from .ridge import effective_penalty_of_ratio


class LimitTerms(NamedTuple):
    """Bias, and variance at sigma = 1, of a single member (i == j) and of a pair (i != j)."""

    single_bias: Floats
    pair_bias: Floats
    single_variance: Floats
    pair_variance: Floats
    shrinkage: Floats  # delta


def distance_to_peak(alpha: Floats, gamma: Floats, eta: Floats) -> Floats:
    """eta - alpha * gamma, exactly zero where only rounding keeps it from the peak."""
    gap = eta - alpha * gamma
    rounding = 4 * np.finfo(float).eps * eta
    return np.where(np.abs(gap) <= rounding, 0.0, gap)


def limit_terms(alpha: Floats, gamma: Floats, eta: Floats, lam: Floats | float = 0.0) -> LimitTerms:
    """Terms of members with the penalty `lam`; `d` and `delta` as at the head of this module."""
    gap = distance_to_peak(alpha, gamma, eta)
    shared = alpha * gamma
    mu = effective_penalty_of_ratio(lam / eta, shared / eta)
    mu = np.where((lam == 0) & (gap >= 0), 0.0, mu)
    d = 1 / (1 + mu)
    delta = np.minimum(alpha * d, eta / gamma)
    unexplained = 1 - alpha + alpha * (mu * d) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        # 1 - kappa of a member with itself, without the cancellation near the peak
        room = np.where(lam > 0, d * (mu + lam / (eta * mu)), np.abs(gap) / np.maximum(eta, shared))
        single_bias = np.where(unexplained > 0, unexplained / room, 0.0)
        single_variance = shared * d**2 / (eta * room)
    pair_bias, pair_variance = pair_terms_of(delta, delta, gamma)
    return LimitTerms(single_bias, pair_bias, single_variance, pair_variance, delta)


def pair_terms_of(first: Floats, second: Floats, gamma: Floats) -> tuple[Floats, Floats]:
    """Bias, and variance at sigma = 1, of two different members of shrinkages delta."""
    kappa = first * second * gamma
    lost = (1 - first) * (1 - second)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lost > 0, lost / (1 - kappa), 0.0), kappa / (1 - kappa)


def limiting_bias(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
    lam: "ArrayLike" = 0.0,
) -> "Floats":
    r"""Limiting bias of `k` members (paper, equations (16) and (19)).

    .. math:: \frac{k-1}{k}\,\frac{(1-\delta)^2}{1-\delta^2\gamma} + \frac1k B, \qquad
              B = \frac{\eta(1-\alpha)}{\eta-\alpha\gamma} \;\text{ or }\;
              1-\frac\eta\gamma+\frac{\eta(1-\alpha)}{\alpha\gamma-\eta}

    :math:`\delta = \min(\alpha, \eta/\gamma)`; the second `B` is for :math:`\alpha\gamma > \eta` (interpolators).
    At the peak a finite ensemble gives ``inf`` (0 for alpha = 1: a square system is solved
    exactly). It falls with `k`: inequalities (27) and (28). Members with a penalty `lam`: see
    `limiting_risk`.

    Status: theorem for :math:`\alpha\gamma < \eta = 1` without penalty; asymptotic for row subsets,
    interpolators and penalties. All arguments broadcast.

    Examples
    --------
    >>> (
    ...     round(float(limiting_bias(0.5, 0.5)), 6),
    ...     round(float(limiting_bias(0.5, 0.5, k=1)), 6),
    ... )
    (0.285714, 0.666667)
    """
    alpha, gamma, k, eta, lam = letters(alpha=alpha, gamma=gamma, k=k, eta=eta, lam=lam)
    terms = limit_terms(alpha, gamma, eta, lam)
    return mean_of_pairs(terms.single_bias, terms.pair_bias, k)


def limiting_variance(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
    lam: "ArrayLike" = 0.0,
) -> "Floats":
    r"""Limiting variance of `k` members (paper, equations (17), (20) and (41)).

    .. math:: \sigma^2\Bigl[\frac{k-1}{k}\,\frac{\delta^2\gamma}{1-\delta^2\gamma}
              + \frac1k\,\frac{\min(\alpha\gamma, \eta)}{|\eta-\alpha\gamma|}\Bigr], \qquad
              \delta = \min(\alpha, \eta/\gamma)

    It falls with `k`: inequalities (29) and (30). Members with a penalty `lam`: see
    `limiting_risk`.

    Status: theorem for :math:`\alpha\gamma < \eta = 1` without penalty; asymptotic for row subsets,
    interpolators and penalties; ``inf`` at the peak. All arguments broadcast.

    Examples
    --------
    >>> (
    ...     round(float(limiting_variance(0.5, 0.5, 1.0)), 6),
    ...     round(float(limiting_variance(0.5, 0.5, 1.0, k=1)), 6),
    ... )
    (0.142857, 0.333333)
    """
    alpha, gamma, sigma = letters(alpha=alpha, gamma=gamma, sigma=sigma)
    k, eta, lam = letters(k=k, eta=eta, lam=lam)
    terms = limit_terms(alpha, gamma, eta, lam)
    variance = mean_of_pairs(terms.single_variance, terms.pair_variance, k)
    return times_square(sigma, variance)


def limiting_risk(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
    mu: "ArrayLike" = 1.0,
    lam: "ArrayLike" = 0.0,
) -> "Floats":
    r"""Limiting risk of `k` members, scaled by `mu` (paper, Theorem 3.5, equations (21) and (22)).

    .. math:: \frac{k-1}{k}\,\frac{(1-\delta)^2 + \sigma^2\delta^2\gamma}{1-\delta^2\gamma}
              + \frac1k\,\frac{\eta(1-\alpha) + \sigma^2\alpha\gamma}{\eta-\alpha\gamma}

    for :math:`\alpha\gamma < \eta`, where :math:`\delta = \alpha`. Above the peak members are
    minimum-norm,
    :math:`\delta = \eta/\gamma`, and the second fraction becomes the bias and variance of one interpolator
    (`limiting_bias`, `limiting_variance`). So the large ensemble is finite through the peak, a
    finite one is not. Noise-free excess risk. ``k=inf`` is the large ensemble. `mu`: see
    `theory.optimal_mu`. Assumption 3.4 defines the limit, equation (18) the risk.

    Members may be ridge regressions of penalty `lam`, that is :math:`\lambda/n`, n being all rows.
    Then

    .. math:: \delta = \alpha d, \qquad d = \frac1{1+\mu_1}, \qquad
              \frac\lambda n = \mu_1(\eta - \alpha\gamma d)

    and the second fraction becomes
    :math:`(\sigma^2 + q)/(1-\alpha\gamma d^2/\eta) - \sigma^2` with :math:`q = 1-\alpha+\alpha(1-d)^2`.
    So the large ensemble depends on size, rows and penalty through :math:`\delta` alone:
    `theory.row_path` and `theory.column_path` are its contours.

    Status: theorem for :math:`\alpha\gamma < \eta = 1` without penalty; asymptotic for row subsets,
    interpolators and penalties. All arguments broadcast.

    Examples
    --------
    >>> round(float(limiting_risk(0.5, 1.0, 0.5**0.5)), 6)
    0.5
    >>> limiting_risk([0.25, 0.5], 2.0, 1.0, k=10)
    array([0.95714286,        inf])
    >>> limiting_risk(1.0, 2.0, 1.0, k=10, eta=0.5, lam=[0.0, 0.5])
    array([0.81547619, 0.79994382])
    """
    alpha, gamma, sigma = letters(alpha=alpha, gamma=gamma, sigma=sigma)
    k, eta, mu, lam = letters(k=k, eta=eta, mu=mu, lam=lam)
    terms = limit_terms(alpha, gamma, eta, lam)
    risk = _risk(terms, sigma, k)
    return rescale(risk, terms.shrinkage, mu)


def _risk(terms: LimitTerms, sigma: Floats, k: Floats) -> Floats:
    """Risk of `k` members from the terms of one member and of a pair."""
    single = terms.single_bias + times_square(sigma, terms.single_variance)
    pair = terms.pair_bias + times_square(sigma, terms.pair_variance)
    return mean_of_pairs(single, pair, k)


def limiting_risk_derivative(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Derivative of `limiting_risk` with respect to alpha, members below the peak.

    .. math:: \frac{k-1}{k}\,\frac{2[-\alpha^2\gamma + \alpha(\gamma(\sigma^2+1)+1) - 1]}{(1-\alpha^2\gamma)^2}
              + \frac1k\,\frac{\eta[\gamma(1+\sigma^2)-\eta]}{(\eta-\alpha\gamma)^2}

    The first fraction corrects equation (76) of the paper, which lacks the factor 2 and the alpha
    of the middle term; the root is unaffected.

    Status: theorem. All arguments broadcast.

    Examples
    --------
    >>> float(limiting_risk_derivative(0.5, 1.0, 0.5**0.5).round(12))
    0.0
    """
    alpha, gamma, sigma, k, eta = letters(alpha=alpha, gamma=gamma, sigma=sigma, k=k, eta=eta)
    if np.any(alpha * gamma >= eta):
        ratio = alpha * gamma / eta
        raise ValueError(
            "limiting_risk_derivative needs alpha * gamma < eta (more rows than columns per member);"
            f" largest alpha * gamma / eta is {np.max(ratio):.6g}. Differences of limiting_risk work"
            " on both sides."
        )
    return _slope(alpha, gamma, sigma, k=k, eta=eta)


def _slope(alpha: Floats, gamma: Floats, sigma: Floats, k: Floats, eta: Floats) -> Floats:
    """`limiting_risk_derivative` of checked arguments."""
    noise = gamma * (1 + sigma**2)
    pair_numerator = 2 * (alpha * (noise + 1) - alpha**2 * gamma - 1)
    single_numerator = eta * (noise - eta)
    with np.errstate(divide="ignore", invalid="ignore"):
        pair = pair_numerator / (1 - alpha**2 * gamma) ** 2
        single = single_numerator / (eta - alpha * gamma) ** 2
    return mean_of_pairs(single, pair, k)


def optimal_alpha(
    gamma: "ArrayLike", sigma: "ArrayLike", *, k: "ArrayLike" = inf, eta: "ArrayLike" = 1.0
) -> "Floats":
    r"""The alpha in :math:`(0, \min(1, \eta/\gamma))` with the lowest limiting risk.

    .. math:: \alpha_* = \frac{2}{c + \sqrt{c^2-4\gamma}}, \qquad c = \gamma(\sigma^2+1)+1 \qquad (k = \infty)

    and there :math:`R = 1-\alpha_*`, the optimal ridge risk: equations (77), (78) and
    Corollary 3.7, equation (26), of the paper. Figure 3 has finite `k`. For eta below
    :math:`\alpha_*\gamma` the large ensemble is best at the peak, eta / gamma. For finite `k`: the best
    of a grid of 128 alphas, refined by bisection of the derivative; the end of the interval is
    returned when the risk is monotone (0: nothing beats the zero predictor).

    Status: theorem for k = inf, numerical minimisation of a theorem otherwise. All arguments
    broadcast.

    Examples
    --------
    >>> float(optimal_alpha(1.0, 0.5**0.5))
    0.5
    >>> optimal_alpha(2.0, 0.1, k=[1, 10, 100, np.inf]).round(4)
    array([0.    , 0.31  , 0.42  , 0.4904])
    """
    gamma, sigma, k, eta = letters(gamma=gamma, sigma=sigma, k=k, eta=eta)
    large = np.minimum(_large_ensemble_alpha(gamma, sigma), eta / gamma)
    if np.all(np.isinf(k)):
        shape = np.broadcast_shapes(large.shape, k.shape)
        return np.broadcast_to(large, shape)[()]
    gamma, sigma, k, eta = np.broadcast_arrays(gamma, sigma, k, eta)
    finite = _bounded_minimum(gamma, sigma, k=k, eta=eta)
    return np.where(np.isinf(k), large, finite)[()]


def _large_ensemble_alpha(gamma: Floats, sigma: Floats) -> Floats:
    noise = sigma**2
    c = gamma * (noise + 1) + 1
    # c**2 - 4 gamma, written without the cancellation near gamma = 1 and sigma = 0
    discriminant = (gamma - 1) ** 2 + 2 * gamma * noise * (gamma + 1) + (gamma * noise) ** 2
    return 2 / (c + np.sqrt(discriminant))


def _bounded_minimum(gamma: Floats, sigma: Floats, k: Floats, eta: Floats) -> Floats:
    """Grid, then bisection on the slope between the neighbours of the best grid point."""
    n_intervals = 128
    max_alpha = np.minimum(1, eta / gamma)
    best_risk = np.full(max_alpha.shape, inf)
    best = np.zeros(max_alpha.shape)  # fraction of max_alpha
    for fraction in np.linspace(0, 1, n_intervals + 1):
        risk = _risk(limit_terms(fraction * max_alpha, gamma, eta), sigma, k)
        is_better = risk < best_risk
        best_risk = np.where(is_better, risk, best_risk)
        best = np.where(is_better, fraction, best)
    low = np.maximum(best - 1 / n_intervals, 0)
    high = np.minimum(best + 1 / n_intervals, 1)
    for _ in range(60):
        middle = (low + high) / 2
        is_rising = _slope(middle * max_alpha, gamma, sigma, k=k, eta=eta) > 0
        low = np.where(is_rising, low, middle)
        high = np.where(is_rising, middle, high)
    # A risk that only rises leaves low at 0, one that only falls leaves high at 1: the ends of the
    # interval.
    best = np.where(low == 0, 0.0, high)
    return best * max_alpha


def required_members(
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    excess: "ArrayLike" = 0.01,
    eta: "ArrayLike" = 1.0,
    design: str = "independent",
) -> "Floats":
    r"""Members needed at alpha_* for a risk within `excess` (relative) of the large ensemble's.

    .. math:: k = \frac{1}{\varepsilon(\eta - \alpha_*\gamma)}, \qquad
              k_{bal} = \frac{1}{\varepsilon}\Bigl[\frac{1}{1-\alpha_*\gamma} - \frac{1}{1-a\gamma}\Bigr]
              \quad (\eta = 1,\; a = \max(0, 2\alpha_*-1))

    because :math:`R_k = (1-\alpha_*)[1 + 1/(k(\eta-\alpha_*\gamma))]` at :math:`\alpha_*`. The
    second formula is for balanced blocks; for :math:`\alpha_* \le 1/2` it is the first times
    :math:`\alpha_*\gamma`. Numbers are rounded up.

    Status: exact consequence of the limiting risk (theorem) for independent subsets; asymptotic for
    balanced subsets, whose blocks are assumed to fill the columns. All arguments broadcast.

    Examples
    --------
    >>> (
    ...     int(required_members(1.0, 0.5**0.5)),
    ...     int(required_members(1.0, 0.5**0.5, design="balanced")),
    ... )
    (200, 100)
    """
    gamma, sigma, excess, eta = letters(gamma=gamma, sigma=sigma, excess=excess, eta=eta)
    require_choice("design", design, ("independent", "balanced"))
    alpha = _large_ensemble_alpha(gamma, sigma)
    gap = eta - alpha * gamma
    if np.any(gap <= 0):
        raise ValueError(
            "required_members needs eta > alpha_* gamma (members below the interpolation peak);"
            f" smallest eta - alpha_* gamma is {np.min(gap):.6g}. Use more rows, or"
            " optimal_alpha(gamma, sigma, k=k, eta=eta)."
        )
    excess_times_k = 1 / gap  # the relative excess of k members, times k
    if design == "balanced":
        require(eta == 1, f"balanced designs need eta = 1; got {np.min(eta):.6g}.")
        overlap = np.maximum(0, 2 * alpha - 1)
        excess_times_k = excess_times_k - 1 / (1 - overlap * gamma)
    k = np.ceil(excess_times_k / excess * (1 - 1e-12))
    return np.maximum(1, k)


def better_side(gamma: "ArrayLike", sigma: "ArrayLike") -> "NDArray[np.str_]":
    r"""The side of the data to subsample for the smaller 1/k excess: ``"rows"`` or ``"features"``.

    .. math:: \text{rows} \iff (1-\alpha_*\gamma)^2 < \gamma(1-\alpha_*)

    Features: least squares on :math:`\alpha_* p` columns and all rows, excess
    :math:`(1-\alpha_*)/(1-\alpha_*\gamma)/k`. Rows: minimum-norm on all columns and :math:`\alpha_* p` rows,
    excess :math:`(1-\alpha_*\gamma)/\gamma/k`. Both tend to :math:`1-\alpha_*`. For gamma >= 1
    it is always rows.

    Status: asymptotic, identity covariance; collinear data can reverse it. Broadcasts.

    Examples
    --------
    >>> print(better_side(2.0, 0.5), better_side(0.1, 0.5))
    rows features
    """
    gamma, sigma = letters(gamma=gamma, sigma=sigma)
    alpha = _large_ensemble_alpha(gamma, sigma)
    excess_of_rows = (1 - alpha * gamma) ** 2
    excess_of_features = gamma * (1 - alpha)  # both times gamma (1 - alpha gamma) k
    return np.where(excess_of_rows < excess_of_features, "rows", "features")[()]
