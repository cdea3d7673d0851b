r"""Ridge regression in the same limit, and the dictionary between penalty and subset size.

Every `lam` is :math:`\lambda/n`, where ridge minimises :math:`\|y-Xb\|^2 + \lambda\|b\|^2`:
multiply by `n` for the penalty of a ridge routine. Identity covariance, unit-norm signal, p / n ->
gamma.
"""

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Floats, letters, require


def alpha_from_penalty(lam: "ArrayLike", gamma: "ArrayLike") -> "Floats":
    r"""The subset ratio whose large ensemble equals ridge at penalty ``lam`` (= lambda / n).

    .. math:: \alpha = \frac{2}{b + \sqrt{b^2-4\gamma}}, \qquad b = 1+\gamma+\texttt{lam}

    It is also the limiting degrees of freedom of ridge divided by p. ``lam=0`` gives ``min(1,
    1/gamma)``.

    Status: theorem (the limiting risks agree at every sigma). Broadcasts.

    Examples
    --------
    >>> float(alpha_from_penalty(0.5, 1.0))
    0.5
    """
    lam, gamma = letters(lam=lam, gamma=gamma)
    b = 1 + gamma + lam
    return 2 / (b + _root(lam, gamma))


def _root(lam: Floats, gamma: Floats) -> Floats:
    """The root of (1 + gamma + lam)**2 - 4 gamma, without cancellation near gamma = 1."""
    return np.sqrt((1 - gamma) ** 2 + 2 * lam * (1 + gamma) + lam**2)


def penalty_from_alpha(alpha: "ArrayLike", gamma: "ArrayLike") -> "Floats":
    r"""The ridge penalty, as lambda / n, that the large ensemble of ratio alpha realises.

    .. math:: \frac{\lambda}{n} = \frac{(1-\alpha)(1-\alpha\gamma)}{\alpha}

    Inverse of `alpha_from_penalty` on :math:`0 < \alpha \le \min(1, 1/\gamma)`.

    Status: theorem. Broadcasts.

    Examples
    --------
    >>> float(penalty_from_alpha(0.5, 1.0))
    0.5
    """
    alpha, gamma = letters(alpha=alpha, gamma=gamma)
    shared = alpha * gamma
    require(
        (alpha > 0) & (shared <= 1 + 1e-15),
        "penalty_from_alpha needs 0 < alpha <= min(1, 1 / gamma); largest alpha * gamma is "
        f"{np.max(shared):.6g}. Interpolating members act like alpha = eta / gamma.",
    )
    with np.errstate(over="ignore"):  # the penalty is infinite for almost no columns
        lam = (1 - alpha) * (1 - shared) / alpha
    return np.maximum(0, lam)


def ridge_risk(lam: "ArrayLike", gamma: "ArrayLike", sigma: "ArrayLike") -> "Floats":
    r"""Limiting risk of ridge regression at penalty ``lam`` = lambda / n.

    .. math:: \frac{\kappa^2 + \sigma^2\gamma}{(1+\kappa)^2 - \gamma}, \qquad
              \texttt{lam} = \kappa\Bigl(1 - \frac{\gamma}{1+\kappa}\Bigr)

    :math:`\kappa \ge 0` is the effective penalty. With :math:`\delta = 1/(1+\kappa)` this is the large-ensemble risk
    at :math:`\alpha = \delta`, so ridge and the ensemble agree along the whole path, not at the
    optimum only. ``lam=0`` is ridgeless (minimum-norm) least squares.

    Status: theorem. All arguments broadcast.

    Examples
    --------
    >>> float(ridge_risk(0.5, 1.0, 0.5**0.5).round(12))
    0.5
    """
    lam, gamma, sigma = letters(lam=lam, gamma=gamma, sigma=sigma)
    kappa = _effective_penalty(lam, gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        risk = (kappa**2 + sigma**2 * gamma) / ((1 + kappa) ** 2 - gamma)
    # lam = 0, gamma = 1: a square system is exact without noise and has infinite risk with noise
    is_square_system = (lam == 0) & (gamma == 1)
    risk_of_square_system = np.where(sigma == 0, 0.0, np.inf)
    return np.where(is_square_system, risk_of_square_system, risk)[()]


def _effective_penalty(lam: Floats, gamma: Floats) -> Floats:
    """Positive root of kappa**2 + kappa (1 - gamma - lam) - lam = 0, without cancellation."""
    slope = 1 - gamma - lam
    root = _root(lam, gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = 2 * lam / (slope + root)
    return np.where(slope > 0, kappa, (root - slope) / 2)


def optimal_ridge_risk(gamma: "ArrayLike", sigma: "ArrayLike") -> "Floats":
    r"""The lowest limiting risk of ridge regression, over all penalties.

    .. math:: \frac12\Bigl(x + \sqrt{x^2 + 4\sigma^2}\Bigr), \qquad x = \frac{\gamma-1}{\gamma} - \sigma^2

    Dobriban and Wager (2018, Theorem 2.1), in the paper's units. It equals :math:`1-\alpha_*`.

    Status: theorem. Broadcasts.

    Examples
    --------
    >>> float(optimal_ridge_risk(1.0, 0.5**0.5).round(12))
    0.5
    """
    gamma, sigma = letters(gamma=gamma, sigma=sigma)
    x = (gamma - 1) / gamma - sigma**2
    root = np.sqrt(x**2 + 4 * sigma**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        risk = 2 * sigma**2 / (root - x)  # without cancellation for negative x
    risk = np.where(root == 0, 0.0, risk)
    return np.where(x > 0, (x + root) / 2, risk)[()]


def optimal_ridge_penalty(gamma: "ArrayLike", sigma: "ArrayLike") -> "Floats":
    r"""The penalty of the best ridge, as lambda / n.

    .. math:: \frac{\lambda_*}{n} = \gamma\sigma^2, \qquad\text{that is}\qquad \lambda_* = p\,\sigma^2

    Status: theorem (ridge is then the posterior mean for beta ~ N(0, I / p)). Broadcasts.

    Examples
    --------
    >>> float(optimal_ridge_penalty(2.0, 0.5))
    0.5
    """
    gamma, sigma = letters(gamma=gamma, sigma=sigma)
    return gamma * sigma**2
