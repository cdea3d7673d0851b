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

    The paper has it at the optimum only (Theorem 3.6). Inverse of `alpha_from_penalty` on
    :math:`0 < \alpha \le \min(1, 1/\gamma)`.

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

    :math:`\kappa \ge 0` is the effective penalty, and the estimator that of equation (23) of the
    paper, which has the risk at the best penalty only (`optimal_ridge_risk`). With
    :math:`\delta = 1/(1+\kappa)` this is the large-ensemble risk
    at :math:`\alpha = \delta`, so ridge and the ensemble agree along the whole path, not at the
    optimum only. ``lam=0`` is ridgeless (minimum-norm) least squares.

    Status: theorem. All arguments broadcast.

    Examples
    --------
    >>> float(ridge_risk(0.5, 1.0, 0.5**0.5).round(12))
    0.5
    """
    lam, gamma, sigma = letters(lam=lam, gamma=gamma, sigma=sigma)
    kappa = effective_penalty_of_ratio(lam, gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        risk = (kappa**2 + sigma**2 * gamma) / ((1 + kappa) ** 2 - gamma)
    # lam = 0, gamma = 1: a square system is exact without noise and has infinite risk with noise
    is_square_system = (lam == 0) & (gamma == 1)
    risk_of_square_system = np.where(sigma == 0, 0.0, np.inf)
    return np.where(is_square_system, risk_of_square_system, risk)[()]


def effective_penalty_of_ratio(lam: Floats, gamma: Floats) -> Floats:
    """Positive root of kappa**2 + kappa (1 - gamma - lam) - lam = 0, without cancellation."""
    slope = 1 - gamma - lam
    root = _root(lam, gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = 2 * lam / (slope + root)
    return np.where(slope > 0, kappa, (root - slope) / 2)


def row_path(lam: "ArrayLike", gamma: "ArrayLike", eta: "ArrayLike") -> "Floats":
    r"""The penalty of members on a fraction `eta` of the rows that equals ``lam`` on all rows, identity
    covariance.

    .. math:: \frac{\lambda_\eta}{n} = \frac{(1-\delta)(\eta-\gamma\delta)}{\delta}, \qquad
              \delta = \texttt{alpha\_from\_penalty(lam, gamma)}

    The large ensemble of ridge regressions on all columns has the same risk at every point of the
    path, from ``lam`` at ``eta=1`` to no penalty at ``eta = gamma * delta``, where members
    interpolate. Per row of a member, :math:`\lambda_\eta/(\eta n)` is linear in 1 / eta. The
    path is that of Du, Patil and Kuchibhotla (2023) for identity covariance; for any covariance:
    `theory.covariance_row_path`.

    Status: asymptotic (`limiting_risk` depends on delta alone). Broadcasts.

    Examples
    --------
    >>> row_path(0.5, 1.0, [1.0, 0.75, 0.5])
    array([0.5 , 0.25, 0.  ])
    """
    lam, gamma, eta = letters(lam=lam, gamma=gamma, eta=eta)
    delta = alpha_from_penalty(lam, gamma)
    rows_to_spare = eta - gamma * delta
    require(
        rows_to_spare >= -1e-14,
        f"row_path ends without penalty at eta = gamma * delta = {np.max(gamma * delta):.6g}, the"
        f" degrees of freedom per row; got lam = {np.min(lam):.6g}, eta = {np.min(eta):.6g}.",
    )
    return (1 - delta) * np.maximum(0, rows_to_spare) / delta


def column_path(lam: "ArrayLike", gamma: "ArrayLike", alpha: "ArrayLike") -> "Floats":
    r"""The penalty of members on a fraction `alpha` of the columns that equals ``lam`` on all, identity
    covariance.

    .. math:: \frac{\lambda_\alpha}{n} = \frac{(\alpha-\delta)(1-\gamma\delta)}{\delta}, \qquad
              \delta = \texttt{alpha\_from\_penalty(lam, gamma)}

    The large ensemble of ridge regressions on all rows has the same risk at every point of the
    path, from ``lam`` at ``alpha=1`` to the paper's ensemble without penalty at ``alpha = delta``.
    It is linear in alpha. With other covariances, members on random columns shrink other directions
    than ridge regression does, and no penalty gives the same risk for every signal.

    Status: asymptotic (`limiting_risk` depends on delta alone). Broadcasts.

    Examples
    --------
    >>> column_path(0.5, 1.0, [1.0, 0.75, 0.5])
    array([0.5 , 0.25, 0.  ])
    """
    lam, gamma, alpha = letters(lam=lam, gamma=gamma, alpha=alpha)
    delta = alpha_from_penalty(lam, gamma)
    columns_to_spare = alpha - delta
    require(
        columns_to_spare >= -1e-14,
        f"column_path ends without penalty at alpha = delta = {np.max(delta):.6g}, the degrees of"
        f" freedom per column; got lam = {np.min(lam):.6g}, alpha = {np.min(alpha):.6g}.",
    )
    return np.maximum(0, columns_to_spare) * (1 - gamma * delta) / delta


def optimal_ridge_risk(gamma: "ArrayLike", sigma: "ArrayLike") -> "Floats":
    r"""The lowest limiting risk of ridge regression, over all penalties.

    .. math:: \frac12\Bigl(x + \sqrt{x^2 + 4\sigma^2}\Bigr), \qquad x = \frac{\gamma-1}{\gamma} - \sigma^2

    Dobriban and Wager (2018, Theorem 2.1), in the paper's units: Proposition D.1, equation (74). It
    equals :math:`1-\alpha_*`, the risk of the best large ensemble: Theorem 3.6, equation (24), and the
    Theorem (preview).

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

    Ridge is then the posterior mean for beta ~ N(0, I / p), the optimal linear predictor of
    equation (25) of the paper.

    Status: theorem. Broadcasts.

    Examples
    --------
    >>> float(optimal_ridge_penalty(2.0, 0.5))
    0.5
    """
    gamma, sigma = letters(gamma=gamma, sigma=sigma)
    return gamma * sigma**2
