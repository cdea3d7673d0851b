r"""Members with fewer rows than columns: minimum-norm interpolators (paper, section 5.2).

The paper gives the limiting variance and leaves the bias open. For identity covariance bias and
variance have closed forms: exact at finite size for one member, in the limit for two different
members, and exact for two members that use all columns. In the limit (`limiting_risk`) the term of
two different members does not depend on the number of columns.
"""

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Counts, Floats, letters, require, require_at_most, require_choice
from ._distributions import shared_rows
from ._pairs import mean_of_pairs, rescale, same_group_fraction


def minimum_norm_risk(
    n: "ArrayLike",
    p: "ArrayLike",
    n_features: "ArrayLike",
    sigma: "ArrayLike",
    *,
    k: "ArrayLike",
    n_samples: "ArrayLike",
    design: str = "independent",
    mu: "ArrayLike" = 1.0,
    beta_norm: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Risk of `k` minimum-norm members at finite sizes.

    .. math:: \frac1k R_{diag} + \frac{N_{same}}{k^2} R_{same} + \Bigl(1 - \frac1k - \frac{N_{same}}{k^2}\Bigr) R_{off}

    Section 5.2 of the paper; the limit of the variance is its equation (41).

    One member of :math:`m` columns and :math:`\tau` rows loses the signal outside the row space;
    the left-out signal and the noise enter through the trace of an inverse Wishart matrix with the
    roles of rows and columns exchanged. Two members that share :math:`a` columns and :math:`t` rows
    follow the general pair formula (`theory.pair_risk`) at identity covariance, and
    `theory.overlap_variance` with the roles exchanged:

    .. math:: R_{diag} = \|\beta\|^2 \Bigl[ 1 - \frac{\tau}{p} + \Bigl(1-\frac mp\Bigr)\frac{\tau}{m-\tau-1} \Bigr]
              + \sigma^2 \frac{\tau}{m-\tau-1}

    .. math:: R_{off} = \|\beta\|^2\frac{q}{1-t a/m^2} + \sigma^2\frac{t\,a}{m^2-(t+1)a}, \qquad
              q = 1 - \frac{2\tau}{p} + \frac{\tau^2 a}{m^2 p}

    at the mean column overlap :math:`a = m^2/p`, averaged over the hypergeometric number of shared
    rows. Independent columns; ``design="balanced"`` cuts the *rows* into folds: members see
    disjoint folds of `n_samples` rows when ``n_samples <= n / 2``, else leave out disjoint folds of
    ``n - n_samples`` rows.

    Status: exact for k = 1 and, for any k, when members use all columns (n_features = p);
    asymptotic otherwise. All numeric arguments broadcast.

    Examples
    --------
    Four leave-one-quarter-out interpolators come within 1.2 % of optimal ridge (0.6404):

    >>> round(
    ...     float(
    ...         minimum_norm_risk(
    ...             100, 200, 200, 0.5, k=4, n_samples=75, design="balanced"
    ...         )
    ...     ),
    ...     4,
    ... )
    0.6476
    """
    n, p, m, tau = letters(n=n, p=p, n_features=n_features, n_samples=n_samples)
    sigma, k, mu, norm = letters(sigma=sigma, k=k, mu=mu, beta_norm=beta_norm)
    require_choice("design", design, ("independent", "balanced"))
    require_at_most("n", n, n_samples=tau)
    require_at_most("p", p, n_features=m)
    require(
        m >= tau + 2,
        f"minimum_norm_risk needs n_features >= n_samples + 2; got n_features = {np.min(m):.6g}"
        f" with n_samples = {np.max(tau):.6g}. With fewer columns than rows use"
        " theory.expected_risk; in between it is infinite.",
    )
    v = tau / (m - tau - 1)
    single_bias = 1 - tau / p + (1 - m / p) * v
    single = norm**2 * single_bias + sigma**2 * v
    bias, variance = _mean_pair_terms(n, p, m, tau)
    pair = norm**2 * bias + sigma**2 * variance
    risk = mean_of_pairs(single, pair, k)
    if design == "balanced":
        fewest_shared = np.maximum(0, 2 * tau - n)
        bias, variance = _pair_terms(p, m, tau, fewest_shared)
        grouped_pair = norm**2 * bias + sigma**2 * variance
        fold = np.maximum(1, np.minimum(tau, n - tau))
        n_folds = np.floor(n / fold)
        risk = risk + same_group_fraction(k, n_folds) * (grouped_pair - pair)
    delta = tau / p
    return rescale(risk, delta, mu, norm)


def _pair_terms(p: Floats, m: Floats, tau: Floats, t: Floats | Counts) -> tuple[Floats, Floats]:
    """Bias for unit signal and variance for unit noise of two members that share `t` rows."""
    a = m**2 / p
    q = 1 - 2 * tau / p + tau**2 * a / (m**2 * p)
    bias = q / (1 - t * a / m**2)
    variance = t * a / (m**2 - (t + 1) * a)
    return bias, variance


def _mean_pair_terms(n: Floats, p: Floats, m: Floats, tau: Floats) -> Floats:
    """`_pair_terms` averaged over the number of rows that two independent members share."""
    sizes = np.broadcast(n, p, m, tau)
    means = []
    for n_, p_, m_, tau_ in sizes:
        t, weights = shared_rows(int(n_), int(tau_))
        bias, variance = _pair_terms(p_, m_, tau_, t)
        means.append((weights @ bias, weights @ variance))
    return np.transpose(means).reshape(2, *sizes.shape)
