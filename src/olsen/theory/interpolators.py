r"""Members with fewer rows than columns: minimum-norm interpolators (paper, section 5.2).

The paper gives the limiting variance and leaves the bias open. For identity covariance both are closed: one member
exactly at finite size, two different members in the limit, and exactly too when they use all columns. In the limit,
`limiting_risk`, two different members do not depend on the number of columns at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Counts, Floats, letters, require, require_choice
from ._distributions import hypergeometric, thin
from ._pairs import mean_of_pairs, rescale, same_group_fraction


def minimum_norm_risk(
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    sigma: ArrayLike,
    *,
    k: ArrayLike,
    n_samples: ArrayLike,
    design: str = "independent",
    mu: ArrayLike = 1.0,
    beta_norm: ArrayLike = 1.0,
) -> Floats:
    r"""Risk of `k` minimum-norm members at finite sizes.

    .. math:: \frac1k R_{diag} + \frac{N_{same}}{k^2} R_{same} + \Bigl(1 - \frac1k - \frac{N_{same}}{k^2}\Bigr) R_{off}

    For one member of :math:`m` columns and :math:`\tau` rows, what the row space cannot see, the left-out signal and
    the noise through the trace of an inverse Wishart matrix with the roles of rows and columns exchanged; for two that
    share :math:`a` columns and :math:`t` rows, the general pair formula (`theory.pair_risk`) at identity covariance,
    and `theory.overlap_variance` with the roles exchanged:

    .. math:: R_{diag} = \|\beta\|^2 \Bigl[ 1 - \frac{\tau}{p} + \Bigl(1-\frac mp\Bigr)\frac{\tau}{m-\tau-1} \Bigr]
              + \sigma^2 \frac{\tau}{m-\tau-1}

    .. math:: R_{off} = \|\beta\|^2\frac{q}{1-t a/m^2} + \sigma^2\frac{t\,a}{m^2-(t+1)a}, \qquad
              q = 1 - \frac{2\tau}{p} + \frac{\tau^2 a}{m^2 p}

    at the mean column overlap :math:`a = m^2/p`, averaged over the hypergeometric number of shared rows. Independent
    columns; ``design="balanced"`` cuts the *rows* into folds: members see disjoint folds of `n_samples` rows when
    ``n_samples <= n / 2``, else leave out disjoint folds of ``n - n_samples`` rows.

    Status: exact for k = 1 and, for any k, when members use all columns (n_features = p); asymptotic otherwise.
    All numeric arguments broadcast.

    Examples
    --------
    Four leave-one-quarter-out interpolators come within 1.2 % of optimal ridge (0.6404):

    >>> round(float(minimum_norm_risk(100, 200, 200, 0.5, k=4, n_samples=75, design="balanced")), 4)
    0.6476
    """
    n, p, m, tau = letters("minimum_norm_risk", n=n, p=p, n_features=n_features, n_samples=n_samples)
    sigma, k, mu, norm = letters("minimum_norm_risk", sigma=sigma, k=k, mu=mu, beta_norm=beta_norm)
    require_choice("design", design, ("independent", "balanced"))
    require(tau <= n, f"minimum_norm_risk: n_samples ({np.max(tau):.6g}) cannot exceed n ({np.min(n):.6g}).")
    require(m <= p, f"minimum_norm_risk: n_features ({np.max(m):.6g}) cannot exceed p ({np.min(p):.6g}).")
    require(
        m >= tau + 2,
        f"minimum_norm_risk needs n_features >= n_samples + 2; got n_features = {np.min(m):.6g} with n_samples = "
        f"{np.max(tau):.6g}. With fewer columns than rows use theory.expected_risk; in between it is infinite.",
    )
    inflation = tau / (m - tau - 1)
    own = norm**2 * (1 - tau / p + (1 - m / p) * inflation) + sigma**2 * inflation
    bias, variance = _mean_pair_terms(n, p, m, tau)
    off = norm**2 * bias + sigma**2 * variance
    risk = mean_of_pairs(own, off, k)
    if design == "balanced":
        bias, variance = _pair_terms(p, m, tau, np.maximum(0, 2 * tau - n))
        folds = np.floor(n / np.maximum(1, np.minimum(tau, n - tau)))
        risk = risk + same_group_fraction(k, folds) * (norm**2 * bias + sigma**2 * variance - off)
    return rescale(risk, tau / p, mu, norm)[()]


def _pair_terms(p: Floats, m: Floats, tau: Floats, t: Floats | Counts) -> tuple[Floats, Floats]:
    """Bias for unit signal and variance for unit noise of two members that share `t` rows."""
    a = m**2 / p
    q = 1 - 2 * tau / p + tau**2 * a / (m**2 * p)
    return q / (1 - t * a / m**2), t * a / (m**2 - (t + 1) * a)


def _mean_pair_terms(n: Floats, p: Floats, m: Floats, tau: Floats) -> Floats:
    """The same averaged over the number of rows two independent members share."""
    n, p, m, tau = np.broadcast_arrays(n, p, m, tau)
    terms = np.empty((2, *n.shape))
    for index in np.ndindex(n.shape):
        t, weight = thin(*hypergeometric(int(n[index]), int(tau[index]), int(tau[index])))
        terms[(slice(None), *index)] = [weight @ term for term in _pair_terms(p[index], m[index], tau[index], t)]
    return terms
