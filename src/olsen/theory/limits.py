r"""Limits of large problems: n, p to infinity with p / n -> gamma, identity covariance, unit-norm
signal.

Letters as in the paper: :math:`\alpha = |S_i|/p`, :math:`\eta = |T_i|/n`, `k` members, noise
`sigma`. Below the interpolation peak (:math:`\alpha\gamma < \eta`) members are ordinary least
squares and the formulas are the paper's theorem; above it they are minimum-norm interpolators. With
:math:`\delta = \min(\alpha, \eta/\gamma)` two different members follow one formula on both sides.
For a signal of norm r use sigma / r and multiply by r**2. The paper scales the large ensemble by mu
(section 4.4). The derivation uses only :math:`E\langle\beta, b\rangle = \delta\|\beta\|^2`, which
holds for a single member, so the scaled risk holds for every `k` with the risk of that `k`.
"""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._arguments import Floats, letters, require, require_choice
from ._pairs import mean_of_pairs, rescale, times_square


class _Terms(NamedTuple):
    """Bias, and variance at sigma = 1, of a single member (i == j) and of a pair (i != j)."""

    single_bias: Floats
    pair_bias: Floats
    single_variance: Floats
    pair_variance: Floats


def _gap(alpha: Floats, gamma: Floats, eta: Floats) -> Floats:
    """eta - alpha * gamma, exactly zero where only rounding keeps it from the peak."""
    gap = eta - alpha * gamma
    rounding = 4 * np.finfo(float).eps * eta
    return np.where(np.abs(gap) <= rounding, 0.0, gap)


def _terms(alpha: Floats, gamma: Floats, eta: Floats) -> _Terms:
    gap = _gap(alpha, gamma, eta)
    is_below_peak = gap > 0
    delta = np.minimum(alpha, eta / gamma)
    shared = delta**2 * gamma
    outside_row_space = 1 - eta / gamma
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.abs(gap)
        left_out = eta * (1 - alpha) / distance
        left_out = np.where(alpha < 1, left_out, 0.0)
        single_bias = np.where(is_below_peak, left_out, outside_row_space + left_out)
        pair_bias = (1 - delta) ** 2 / (1 - shared)
        pair_bias = np.where(delta < 1, pair_bias, 0.0)
        single_variance = np.where(is_below_peak, alpha * gamma, eta) / distance
        pair_variance = shared / (1 - shared)
    return _Terms(single_bias, pair_bias, single_variance, pair_variance)


def limiting_bias(
    alpha: "ArrayLike", gamma: "ArrayLike", *, k: "ArrayLike" = inf, eta: "ArrayLike" = 1.0
) -> "Floats":
    r"""Limiting bias of `k` members (paper, eq. limiting-bias).

    .. math:: \frac{k-1}{k}\,\frac{(1-\delta)^2}{1-\delta^2\gamma} + \frac1k B, \qquad
              B = \frac{\eta(1-\alpha)}{\eta-\alpha\gamma} \;\text{ or }\;
              1-\frac\eta\gamma+\frac{\eta(1-\alpha)}{\alpha\gamma-\eta}

    :math:`\delta = \min(\alpha, \eta/\gamma)`; the second `B` is for :math:`\alpha\gamma > \eta` (interpolators).
    At the peak a finite ensemble gives ``inf`` (0 for alpha = 1: a square system is solved
    exactly).

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak. All arguments
    broadcast.

    Examples
    --------
    >>> round(float(limiting_bias(0.5, 0.5)), 6), round(float(limiting_bias(0.5, 0.5, k=1)), 6)
    (0.285714, 0.666667)
    """
    alpha, gamma, k, eta = letters(alpha=alpha, gamma=gamma, k=k, eta=eta)
    terms = _terms(alpha, gamma, eta)
    return mean_of_pairs(terms.single_bias, terms.pair_bias, k)


def limiting_variance(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Limiting variance of `k` members (paper, eq. limiting-variance and section 5.2).

    .. math:: \sigma^2\Bigl[\frac{k-1}{k}\,\frac{\delta^2\gamma}{1-\delta^2\gamma}
              + \frac1k\,\frac{\min(\alpha\gamma, \eta)}{|\eta-\alpha\gamma|}\Bigr], \qquad
              \delta = \min(\alpha, \eta/\gamma)

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak, ``inf`` at it. All
    arguments broadcast.

    Examples
    --------
    >>> round(float(limiting_variance(0.5, 0.5, 1.0)), 6), round(float(limiting_variance(0.5, 0.5, 1.0, k=1)), 6)
    (0.142857, 0.333333)
    """
    alpha, gamma, sigma, k, eta = letters(alpha=alpha, gamma=gamma, sigma=sigma, k=k, eta=eta)
    terms = _terms(alpha, gamma, eta)
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
) -> "Floats":
    r"""Limiting risk of `k` members, scaled by `mu` (paper, Theorem limiting risk).

    .. math:: \frac{k-1}{k}\,\frac{(1-\delta)^2 + \sigma^2\delta^2\gamma}{1-\delta^2\gamma}
              + \frac1k\,\frac{\eta(1-\alpha) + \sigma^2\alpha\gamma}{\eta-\alpha\gamma}

    for :math:`\alpha\gamma < \eta`, where :math:`\delta = \alpha`. Above the peak members are
    minimum-norm,
    :math:`\delta = \eta/\gamma`, and the second fraction becomes the bias and variance of one interpolator
    (`limiting_bias`, `limiting_variance`). So the large ensemble is finite through the peak, a
    finite one is not. Noise-free excess risk. ``k=inf`` is the large ensemble. `mu`: see
    `theory.optimal_mu`.

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak. All arguments
    broadcast.

    Examples
    --------
    >>> round(float(limiting_risk(0.5, 1.0, 0.5**0.5)), 6)
    0.5
    >>> limiting_risk([0.25, 0.5], 2.0, 1.0, k=10)
    array([0.95714286,        inf])
    """
    alpha, gamma, sigma = letters(alpha=alpha, gamma=gamma, sigma=sigma)
    k, eta, mu = letters(k=k, eta=eta, mu=mu)
    risk = risk_of_members(alpha, gamma, sigma, k=k, eta=eta)
    delta = np.minimum(alpha, eta / gamma)
    return rescale(risk, delta, mu)


def risk_of_members(alpha: Floats, gamma: Floats, sigma: Floats, k: Floats, eta: Floats) -> Floats:
    """`limiting_risk` at mu = 1, of arguments already checked."""
    terms = _terms(alpha, gamma, eta)
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

    The first fraction corrects the paper's eq. risk-derivative, which lacks the factor 2 and the
    alpha of the middle term; the root is unaffected.

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

    and there :math:`R = 1-\alpha_*`, the optimal ridge risk (paper, Corollary). For eta below
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
        risk = risk_of_members(fraction * max_alpha, gamma, sigma, k=k, eta=eta)
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
    >>> int(required_members(1.0, 0.5**0.5)), int(required_members(1.0, 0.5**0.5, design="balanced"))
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


def scaled_risk(risk: "ArrayLike", shrinkage: "ArrayLike", mu: "ArrayLike") -> "Floats":
    r"""Risk of `mu` times an estimator of known risk and shrinkage, unit-norm signal (paper, eq.
    mu-scaled-risk).

    .. math:: \mu^2 R + (1-\mu)^2 + 2\mu(1-\mu)(1-\delta)

    `shrinkage` is :math:`\delta = E\langle\beta, b\rangle`: alpha for least-squares members,
    :math:`\tau/p` for minimum-norm members on :math:`\tau` rows.

    Status: exact at any n, p, k when `risk` is. All arguments broadcast.

    Examples
    --------
    >>> float(scaled_risk(0.5, 0.5, 1.0)), float(scaled_risk(0.5, 0.5, 0.0))
    (0.5, 1.0)
    """
    risk, shrinkage, mu = letters(risk=risk, shrinkage=shrinkage, mu=mu)
    # the bias along the signal alone; the variance of <beta, b> is not negative
    min_risk = (1 - shrinkage) ** 2
    tolerated = min_risk * (1 - 1e-9) - 1e-15  # for the rounding of a risk from a formula
    if np.any(risk < tolerated):
        missing = np.max(min_risk - risk)
        raise ValueError(
            "scaled_risk: an estimator of shrinkage delta has a risk of at least (1 - delta)**2 for"
            f" a signal of norm 1; got a risk {missing:.6g} below that. For a signal of norm r"
            " divide the risk by r**2."
        )
    return rescale(risk, shrinkage, mu)


def optimal_mu(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
) -> "Floats":
    r"""The best scale of `k` members in the limit.

    .. math:: \mu_* = \frac{\delta}{R_k + 2\delta - 1}, \qquad \delta = \min(\alpha, \eta/\gamma)

    with :math:`R_k` the limiting risk of that `k`. It is 1 at the optimal alpha of the large
    ensemble, below 1 for larger alpha and above 1 for smaller (paper, section 4.4).

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak. All arguments
    broadcast.

    Examples
    --------
    >>> round(float(optimal_mu(0.5, 1.0, 0.5**0.5)), 12), round(float(optimal_mu(0.25, 1.0, 0.5**0.5)), 4)
    (1.0, 1.875)
    """
    mu, _ = _scale_and_shrinkage(alpha, gamma, sigma, k=k, eta=eta)
    return mu[()]


def optimally_scaled_risk(
    alpha: "ArrayLike",
    gamma: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Limiting risk at the best scale.

    .. math:: 1 - \frac{\delta^2}{R_k + 2\delta - 1} = 1 - \mu_*\delta

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak. All arguments
    broadcast.

    Examples
    --------
    >>> round(float(optimally_scaled_risk(0.25, 1.0, 0.5**0.5)), 4)
    0.5312
    """
    mu, delta = _scale_and_shrinkage(alpha, gamma, sigma, k=k, eta=eta)
    return 1 - mu * delta


def _scale_and_shrinkage(
    alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, k: ArrayLike, eta: ArrayLike
) -> tuple[Floats, Floats]:
    r"""The best scale :math:`\mu_*` and the shrinkage :math:`\delta`.

    The reciprocal :math:`(R_k + 2\delta - 1)/\delta` of the scale is written out term by term: for
    few columns the difference of the risk and 1 would lose all digits.
    """
    alpha, gamma, sigma, k, eta = letters(alpha=alpha, gamma=gamma, sigma=sigma, k=k, eta=eta)
    require(
        alpha > 0, "alpha must be positive: an ensemble without columns is zero at every scale."
    )
    delta = np.minimum(alpha, eta / gamma)
    gap = _gap(alpha, gamma, eta)
    is_at_peak = gap == 0
    noise = gamma * (1 + sigma**2)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        below_peak = (eta + noise - 2 * alpha * gamma) / gap
        above_peak = 1 + gamma * (1 - alpha + sigma**2) / -gap
        single = np.where(gap > 0, below_peak, above_peak)
        single = np.where(is_at_peak, inf, single)
        pair = delta * (1 + noise - 2 * delta * gamma) / (1 - delta**2 * gamma)
        mu = 1 / mean_of_pairs(single, pair, k)
    solves_square_system = (alpha == 1) & is_at_peak & (sigma == 0)
    return np.where(solves_square_system, 1.0, mu), delta
