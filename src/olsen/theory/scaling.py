r"""Scaling the average by mu (paper, section 4.4), for any number of members.

The paper states it for the large ensemble. Only one fact is used, :math:`E\langle\beta, b\rangle = \delta\|\beta\|^2`,
and it holds for one member already, so the formulas hold for every `k` with the risk of that `k`.
"""

from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from ._pairs import as_floats, check_letters, require, rescale
from ._types import Floats, Number
from .limits import limiting_risk


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
    risk, shrinkage, mu = as_floats(risk, shrinkage, mu)
    return rescale(risk, shrinkage, mu)[()]


@overload
def best_scale(risk: Number, shrinkage: Number) -> np.float64: ...
@overload
def best_scale(risk: ArrayLike, shrinkage: ArrayLike) -> Floats: ...
def best_scale(risk: ArrayLike, shrinkage: ArrayLike) -> np.float64 | Floats:
    r"""The mu that minimises `scaled_risk`.

    .. math:: \mu_* = \frac{\delta}{R + 2\delta - 1}

    The denominator is :math:`E\|b\|^2`. ``nan`` for an estimator that is identically zero.

    Status: exact at any n, p, k when `risk` is. Broadcasts.

    Examples
    --------
    >>> float(best_scale(0.75, 0.5))
    0.6666666666666666
    """
    risk, shrinkage = as_floats(risk, shrinkage)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (shrinkage / (risk + 2 * shrinkage - 1))[()]


@overload
def optimal_mu(alpha: Number, gamma: Number, sigma: Number, *, k: Number = ..., eta: Number = ...) -> np.float64: ...
@overload
def optimal_mu(
    alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, *, k: ArrayLike = ..., eta: ArrayLike = ...
) -> Floats: ...
def optimal_mu(
    alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, *, k: ArrayLike = np.inf, eta: ArrayLike = 1.0
) -> np.float64 | Floats:
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
    risk, shrinkage = _risk_and_shrinkage("optimal_mu", alpha, gamma, sigma, k, eta)
    return best_scale(risk, shrinkage)


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
    risk, shrinkage = _risk_and_shrinkage("optimally_scaled_risk", alpha, gamma, sigma, k, eta)
    return 1 - best_scale(risk, shrinkage) * shrinkage


def _risk_and_shrinkage(
    function: str, alpha: ArrayLike, gamma: ArrayLike, sigma: ArrayLike, k: ArrayLike, eta: ArrayLike
) -> tuple[Floats, Floats]:
    alpha, gamma, sigma, k, eta = as_floats(alpha, gamma, sigma, k, eta)
    check_letters(function, alpha=alpha, gamma=gamma, sigma=sigma, k=k, eta=eta)
    require(alpha > 0, f"{function} needs alpha > 0: an ensemble without columns is zero at every scale.")
    return limiting_risk(alpha, gamma, sigma, k=k, eta=eta), np.minimum(alpha, eta / gamma)
