r"""Scaling the average by mu (paper, section 4.4), for any number of members.

The paper states it for the large ensemble. Only one fact is used, :math:`E\langle\beta, b\rangle = \delta\|\beta\|^2`,
and it holds for one member already, so the formulas hold for every `k` with the risk of that `k`.
"""

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Floats, letters, require
from ._pairs import mean_of_pairs, rescale
from .limits import risk_of_members


def scaled_risk(risk: ArrayLike, shrinkage: ArrayLike, mu: ArrayLike) -> Floats:
    r"""Risk of `mu` times an estimator of known risk and shrinkage, unit-norm signal (paper, eq. mu-scaled-risk).

    .. math:: \mu^2 R + (1-\mu)^2 + 2\mu(1-\mu)(1-\delta)

    `shrinkage` is :math:`\delta = E\langle\beta, b\rangle`: alpha for least-squares members, :math:`\tau/p` for
    minimum-norm members on :math:`\tau` rows.

    Status: exact at any n, p, k when `risk` is. All arguments broadcast.

    Examples
    --------
    >>> float(scaled_risk(0.5, 0.5, 1.0)), float(scaled_risk(0.5, 0.5, 0.0))
    (0.5, 1.0)
    """
    risk, shrinkage, mu = letters("scaled_risk", risk=risk, shrinkage=shrinkage, mu=mu)
    least = (1 - shrinkage) ** 2  # its projection on the signal: the variance of <beta, b> is not negative
    require(
        risk >= least * (1 - 1e-9) - 1e-15,  # what rounding may take from a risk that a formula gave
        f"scaled_risk: an estimator of shrinkage delta has a risk of at least (1 - delta)**2 for a signal of norm 1; "
        f"got a risk {np.max(least - risk):.6g} below that. For a signal of norm r divide the risk by r**2.",
    )
    return rescale(risk, shrinkage, mu)[()]


def optimal_mu(
    alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, *, k: ArrayLike = np.inf, eta: ArrayLike = 1.0
) -> Floats:
    r"""The best scale of `k` members in the limit.

    .. math:: \mu_* = \frac{\delta}{R_k + 2\delta - 1}, \qquad \delta = \min(\alpha, \eta/\gamma)

    with :math:`R_k` the limiting risk of that `k`. It is 1 at the optimal alpha of the large ensemble, below 1 for
    larger alpha and above 1 for smaller (paper, section 4.4).

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak. All arguments broadcast.

    Examples
    --------
    >>> round(float(optimal_mu(0.5, 1.0, 0.5**0.5)), 12), round(float(optimal_mu(0.25, 1.0, 0.5**0.5)), 4)
    (1.0, 1.875)
    """
    mu, _ = _scale_and_shrinkage("optimal_mu", alpha, gamma, sigma, k, eta)
    return mu[()]


def optimally_scaled_risk(
    alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, *, k: ArrayLike = np.inf, eta: ArrayLike = 1.0
) -> Floats:
    r"""Limiting risk at the best scale.

    .. math:: 1 - \frac{\delta^2}{R_k + 2\delta - 1} = 1 - \mu_*\delta

    Status: theorem for :math:`\alpha\gamma < \eta`, asymptotic above the peak. All arguments broadcast.

    Examples
    --------
    >>> round(float(optimally_scaled_risk(0.25, 1.0, 0.5**0.5)), 4)
    0.5312
    """
    mu, shrinkage = _scale_and_shrinkage("optimally_scaled_risk", alpha, gamma, sigma, k, eta)
    return (1 - mu * shrinkage)[()]


def _scale_and_shrinkage(
    function: str, alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, k: ArrayLike, eta: ArrayLike
) -> tuple[Floats, Floats]:
    alpha, gamma, sigma, k, eta = letters(function, alpha=alpha, gamma=gamma, sigma=sigma, k=k, eta=eta)
    require(alpha > 0, f"{function} needs alpha > 0: an ensemble without columns is zero at every scale.")
    shrinkage = np.minimum(alpha, eta / gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        mu = shrinkage / (risk_of_members(alpha, gamma, sigma, k, eta) + 2 * shrinkage - 1)
    # below this shrinkage the risk is too close to 1 to be subtracted from it
    return np.where(shrinkage >= 1e-3, mu, _scale_of_few_columns(alpha, gamma, sigma, k, eta)), shrinkage


def _scale_of_few_columns(alpha: Floats, gamma: Floats, sigma: Floats, k: Floats, eta: Floats) -> Floats:
    r"""The same with :math:`(R_k + 2\delta - 1)/\delta` written out: a risk minus 1 would leave no digit."""
    delta, gap, room = np.minimum(alpha, eta / gamma), eta - alpha * gamma, gamma * (1 + sigma**2)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        below = (eta + room - 2 * alpha * gamma) / gap
        above = 1 + gamma * (1 - alpha + sigma**2) / -gap
        own = np.where(gap > 0, below, np.where(gap < 0, above, np.inf))
        pair = delta * (1 + room - 2 * delta * gamma) / (1 - delta**2 * gamma)
        return 1 / mean_of_pairs(own, pair, k)
