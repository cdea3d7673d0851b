r"""An ensemble times a number mu (section 4.4 of the paper): its risk, and the best number.

The derivation uses only :math:`E\langle\beta, b\rangle = \delta\|\beta\|^2`, which holds for a
single member, so the scaled risk holds for every `k` with the risk of that `k`.
"""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Floats, letters, require
from ._pairs import mean_of_pairs, rescale
from .limits import distance_to_peak


def scaled_risk(risk: "ArrayLike", shrinkage: "ArrayLike", mu: "ArrayLike") -> "Floats":
    r"""Risk of `mu` times an estimator of known risk and shrinkage, unit-norm signal (paper,
    equation (35)).

    .. math:: \mu^2 R + (1-\mu)^2 + 2\mu(1-\mu)(1-\delta)

    `shrinkage` is :math:`\delta = E\langle\beta, b\rangle`, from equations (109) and (112): alpha
    for least-squares members, :math:`\tau/p` for minimum-norm members on :math:`\tau` rows.

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
    ensemble, below 1 for larger alpha and above 1 for smaller (paper, equation (36)).

    Status: theorem for :math:`\alpha\gamma < \eta = 1`, otherwise asymptotic. All arguments
    broadcast.

    Examples
    --------
    >>> (
    ...     round(float(optimal_mu(0.5, 1.0, 0.5**0.5)), 12),
    ...     round(float(optimal_mu(0.25, 1.0, 0.5**0.5)), 4),
    ... )
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

    Equation (37) of the paper; Figure 4 compares it with the risk without a scale.

    Status: theorem for :math:`\alpha\gamma < \eta = 1`, otherwise asymptotic. All arguments
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
    gap = distance_to_peak(alpha, gamma, eta)
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
