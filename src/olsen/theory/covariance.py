r"""Any covariance: the pair formula, and its average over random subsets.

Write :math:`\Sigma_{ii} = \Sigma[S_i, S_i]` and :math:`Q_i = (\Sigma_{ii} + \mu_i I)^{-1}`, where
:math:`\mu_i = 0` for least squares, and otherwise :math:`\lambda = \mu_i(\tau_i -
\mathrm{tr}\,\Sigma_{ii}Q_i)`: ridge members with penalty
:math:`\lambda`, minimum-norm members with :math:`\lambda = 0` and fewer rows than columns. Then

.. math:: R_{ij} + \sigma^2 = \frac{\sigma^2 + r_i^\top\Sigma r_j}{1 - \kappa_{ij}}, \qquad
          r_i = \beta - S_i Q_i \Sigma_{i,:}\beta, \qquad
          \kappa_{ij} = \frac{t}{\tau_i\tau_j}\,\mathrm{tr}[Q_i\Sigma_{ij}Q_j\Sigma_{ji}]

with :math:`t` shared rows. A covariance may be given as a vector: its diagonal. `penalty` is the
absolute
:math:`\lambda` of :math:`\|y-Xb\|^2+\lambda\|b\|^2` on the rows of the member.
"""

from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from . import _arguments
from ._arguments import ROWS, Counts, Floats, Letter, checked, letters, require, scalar
from ._pairs import mean_of_pairs


class _Member(NamedTuple):
    """A member, and what its pairs with other members need of it."""

    features: Counts
    inverse: Floats  # Q_i, m x m
    error: Floats  # r_i, length p
    rows: float  # tau_i
    degrees: float  # tr(Sigma_ii Q_i Sigma_ii Q_i)
    is_ols: bool  # ordinary least squares, mu_i = 0


def _problem(Sigma: ArrayLike, beta: ArrayLike) -> tuple[Floats, Floats]:
    """The covariance as a matrix, and the signal."""
    (beta,) = letters(beta=beta)
    require(beta.ndim == 1, f"beta must be a vector of length p; got shape {beta.shape}.")
    p = len(beta)
    Sigma = _arguments.covariance(Sigma)
    if len(Sigma) != p:
        raise ValueError(
            f"Sigma must be p x p (or its diagonal) for beta of length p = {p}; got {Sigma.shape}."
        )
    return Sigma, beta


def _columns(name: str, features: ArrayLike, p: int) -> Counts:
    """Column indices from indices or from a mask."""
    mask = np.asarray(features)
    if mask.dtype == bool:
        require(
            mask.shape == (p,), f"{name} as a mask must have p = {p} entries; got {mask.shape}."
        )
        return np.flatnonzero(mask)
    column_index = Letter(f"whole numbers of columns, from 0 to {p - 1}", most=p - 1.0, whole=True)
    numbers = checked(name, features, column_index)
    require(numbers.ndim == 1, f"{name} must be a vector of columns; got shape {numbers.shape}.")
    columns: Counts = numbers.astype(int)
    if len(np.unique(columns)) < len(columns):
        raise ValueError(
            f"{name} must name every column once; got {columns.tolist()}. Remove the repeated ones."
        )
    return columns


def effective_penalty(eigenvalues: "ArrayLike", n_samples: float, penalty: float = 0.0) -> float:
    r"""The :math:`\mu \ge 0` with :math:`\lambda = \mu\bigl(\tau - \sum_l
    \frac{s_l}{s_l+\mu}\bigr)`.

    `eigenvalues` :math:`s_l` of the covariance, :math:`\tau` = `n_samples`, :math:`\lambda` =
    `penalty`. Zero for ``penalty=0`` with at least as many rows as eigenvalues that are not zero.

    Status: asymptotic (deterministic equivalent of the resolvent).

    Examples
    --------
    >>> round(effective_penalty([1.0, 1.0, 1.0, 1.0], 2.0), 12)
    1.0
    """
    (s,) = letters(eigenvalues=eigenvalues)
    require(s.ndim == 1 and s.size, f"eigenvalues must be a vector; got shape {s.shape}.")
    tau = scalar("n_samples", n_samples, _arguments.ROWS_OF_A_LIMIT)
    penalty = scalar("penalty", penalty)
    return _effective_penalty(s, tau, penalty)


def _effective_penalty(s: Floats, tau: float, penalty: float) -> float:
    """`effective_penalty` of checked arguments."""
    if penalty == 0 and np.count_nonzero(s) <= tau:
        return 0.0
    if not np.any(s):
        return penalty / tau

    def excess(log_mu: float) -> float:
        mu = np.exp(log_mu)
        degrees = np.sum(s / (s + mu))
        return float(mu * (tau - degrees) - penalty)

    largest = s.max()
    low = np.log(largest) - 60
    high = np.log(largest * (len(s) / tau + 1) + penalty / tau) + 1
    if excess(low) > 0:
        # mu is at least penalty / tau, and without penalty in reach of the smallest eigenvalue
        low = np.log(penalty / tau) - 1 if penalty > 0 else np.log(s[s > 0].min()) - 60
    return float(np.exp(brentq(excess, low, high, xtol=1e-14)))


def _member(Sigma: Floats, beta: Floats, S: Counts, *, rows: float, penalty: float) -> _Member:
    """The member on columns S with a number of rows."""
    Sigma_SS = Sigma[np.ix_(S, S)]
    mu = 0.0
    if penalty > 0 or len(S) > rows:
        eigenvalues = np.linalg.eigvalsh(Sigma_SS)
        eigenvalues = np.maximum(eigenvalues, 0.0)  # negative eigenvalues are rounding
        mu = _effective_penalty(eigenvalues, rows, penalty)
    Q = _inverse(Sigma_SS + mu * np.eye(len(S)), S)
    error = beta.copy()
    error[S] -= Q @ (Sigma[S] @ beta)
    smoother = Sigma_SS @ Q
    degrees = float(np.sum(smoother * smoother.T))
    return _Member(features=S, inverse=Q, error=error, rows=rows, degrees=degrees, is_ols=mu == 0)


def _inverse(matrix: Floats, S: Counts) -> Floats:
    """The inverse; an error if rounding leaves no correct digit.

    An inverse has relative errors of about the number of columns times the machine precision times
    the largest variance inflation. The variance inflation is the diagonal of the matrix times the
    diagonal of its inverse, and does not depend on units.
    """
    try:
        inverse: Floats = np.linalg.inv(matrix).astype(float, copy=False)
    except np.linalg.LinAlgError:
        inverse = np.full(matrix.shape, np.nan)
    inflation = np.diag(matrix) * np.diag(inverse)
    relative_error = inflation * len(S) * np.finfo(float).eps
    has_digits = (inflation > 0) & (relative_error < 1)
    first_columns = ", ".join(map(str, S[:8].tolist())) + ", ..." * (len(S) > 8)
    require(
        has_digits,
        f"the covariance of columns [{first_columns}] is singular (constant or collinear columns),"
        " and members on them have no unique fit. Remove such columns, or give a penalty.",
    )
    return inverse


def _inflation(
    trace: Floats | float, t: float, tau_i: float, tau_j: float, correction: float = 0.0
) -> Floats:
    """1 / (1 - kappa) - 1, with the finite-n correction of the denominator."""
    room = tau_i * tau_j - t * (trace + correction)
    has_room = room > 0
    with np.errstate(divide="ignore"):
        inflation = t * trace / np.where(has_room, room, 1.0)
    return np.where(has_room, inflation, np.inf)


def _pair_risk(
    Sigma: Floats, first: _Member, second: _Member, *, t: float, noise: Floats
) -> Floats:
    """`pair_risk` of two members that share t rows, at this variance of the noise."""
    Q_i = first.inverse
    Q_j = second.inverse
    Sigma_ij = Sigma[np.ix_(first.features, second.features)]
    M = Q_i @ Sigma_ij @ (Q_j @ Sigma_ij.T)
    T = float(np.trace(M))
    Sigma_r_i = Sigma @ first.error
    Sigma_r_j = Sigma @ second.error
    q = float(Sigma_r_i @ second.error)
    rho = 0.0
    if first.is_ols and second.is_ols:
        rho = float(np.sum(M * M.T)) / T if T > 0 else 0.0
        w = Sigma_r_j[first.features] @ Q_i @ Sigma_ij @ Q_j @ Sigma_r_i[second.features]
        q = q + t / (first.rows * second.rows) * float(w)
    inflation = _inflation(T, t, first.rows, second.rows, rho)
    with np.errstate(invalid="ignore"):
        return q + (noise + q) * inflation


def pair_risk(
    Sigma: "ArrayLike",
    beta: "ArrayLike",
    features_i: "ArrayLike",
    features_j: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n: float,
    rows_i: float | None = None,
    rows_j: float | None = None,
    shared_rows: float | None = None,
    penalty: float = 0.0,
) -> "Floats":
    r"""Risk of a given pair of members, :math:`E\,(b_i-\beta)^\top\Sigma(b_j-\beta)`.

    .. math:: R_{ij} = \Bigl(\sigma^2 + q + \frac{t\,w}{\tau_i\tau_j}\Bigr)
              \Bigl(1 + \frac{t\,T}{\tau_i\tau_j - t(T+\rho)}\Bigr) - \sigma^2

    for two least-squares members, with :math:`q = r_i^\top\Sigma r_j`, :math:`M =
    Q_i\Sigma_{ij}Q_j\Sigma_{ji}`,
    :math:`T = \mathrm{tr}\,M`, and the finite-n corrections :math:`\rho = \mathrm{tr}\,M^2/T`,
    :math:`w = (\Sigma_{i,:}r_j)^\top Q_i\Sigma_{ij}Q_j(\Sigma_{j,:}r_i)`, both trivial
    (:math:`\rho = 1, w = 0`) when the projectors commute. When a member is minimum-norm or ridge:
    :math:`(\sigma^2+q)/(1-tT/(\tau_i\tau_j)) - \sigma^2`.

    Parameters
    ----------
    Sigma : array of shape (p, p) or (p,)
        Covariance of a row, or its diagonal.
    beta : array of shape (p,)
    features_i, features_j : arrays of column indices, or boolean masks
    sigma : float
        Noise standard deviation; may be an array.
    n : int
        Rows of the data.
    rows_i, rows_j : int, optional
        Rows of each member. Default: all n.
    shared_rows : float, optional
        Rows in common. Default: ``rows_i * rows_j / n``, the mean for rows drawn independently,
        which is n when both use all rows. A member with itself shares all its rows, so give that
        number.
    penalty : float
        Ridge penalty of the members, absolute.

    Notes
    -----
    Status: exact for one least-squares member with itself, and with all rows for projectors that
    commute (diagonal Sigma, nested sets, sets separated by their intersection in a Markov chain).
    Otherwise asymptotic: for least squares on all rows w completes the order 1/n and rho is
    heuristic; minimum-norm and ridge members have an error O(1/n).

    Examples
    --------
    >>> Sigma = [[1.0, 0.5], [0.5, 1.0]]
    >>> float(pair_risk(Sigma, [1.0, 0.0], [0], [0], 1.0, n=12).round(12))
    0.1
    >>> float(pair_risk(Sigma, [1.0, 0.0], [0], [1], 1.0, n=12).round(4))
    0.0217
    """
    Sigma, beta = _problem(Sigma, beta)
    S_i = _columns("features_i", features_i, len(beta))
    S_j = _columns("features_j", features_j, len(beta))
    (sigma,) = letters(sigma=sigma)
    penalty = scalar("penalty", penalty)
    n = scalar("n", n)
    tau_i = n if rows_i is None else scalar("rows_i", rows_i, ROWS)
    tau_j = n if rows_j is None else scalar("rows_j", rows_j, ROWS)
    t = tau_i * tau_j / n if shared_rows is None else scalar("shared_rows", shared_rows)
    if not 0 <= t <= min(tau_i, tau_j) <= max(tau_i, tau_j) <= n:
        raise ValueError(
            f"pair_risk needs shared_rows <= rows <= n; got shared_rows = {t:.6g}, rows {tau_i:g}"
            f" and {tau_j:g}, n = {n:g}."
        )
    least_shared = tau_i + tau_j - n
    if shared_rows is not None and t < least_shared:
        raise ValueError(
            f"pair_risk: of n = {n:g} rows, members of {tau_i:g} and {tau_j:g} share at least"
            f" {least_shared:g}; got {t:.6g}."
        )
    first = _member(Sigma, beta, S_i, rows=tau_i, penalty=penalty)
    second = _member(Sigma, beta, S_j, rows=tau_j, penalty=penalty)
    return _pair_risk(Sigma, first, second, t=t, noise=sigma**2)


def covariance_risk(
    Sigma: "ArrayLike",
    beta: "ArrayLike",
    alpha: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n: float,
    k: "ArrayLike" = inf,
    eta: float = 1.0,
    rng: "np.random.Generator | int | None" = None,
    n_subsets: int = 200,
    penalty: float = 0.0,
    return_std: bool = False,
) -> Any:
    r"""Risk of `k` members on random columns, any covariance.

    .. math:: R_{off} + \frac{R_{diag}-R_{off}}{k}, \qquad
              R_{off} + \sigma^2 = \frac{\sigma^2 + \bar r^\top\Sigma\bar r}{1 - \mathrm{tr}(\bar\Pi^2)/n}

    where :math:`\bar r` and :math:`\bar\Pi = E\,\Sigma^{1/2}S Q S^\top\Sigma^{1/2}` average over
    subsets (the averaged projector). Averages over *different* members are U-statistics of
    `n_subsets` drawn subsets, so products of averages have no bias; :math:`R_{diag}` is the mean of
    `pair_risk` of each subset with itself.

    Parameters
    ----------
    Sigma, beta, sigma, n, penalty
        As in `pair_risk`; `sigma` and `k` broadcast.
    alpha : float or array of shape (p,)
        A number: subsets of size ``round(alpha * p)``. An array: coin flips with these inclusion
        probabilities.
    eta : float
        Each member sees ``round(eta * n)`` rows, drawn independently.
    rng : numpy Generator or seed
    n_subsets : int
        Number of subsets drawn; memory grows as ``n_subsets * m**2``.
    return_std : bool
        Also return the Monte-Carlo standard error (delete-one jackknife over the subsets).

    Notes
    -----
    Status: asymptotic with Monte-Carlo over subsets; relative error O(1/n). Coin flips are redrawn
    above ``eta * n - 2`` columns when their mean is below it (the paper's rule).

    Examples
    --------
    With identity covariance the risk depends on the drawn subsets only through the position of the
    signal:

    >>> risk = covariance_risk(np.ones(40), np.full(40, 40**-0.5), 0.25, 1.0, n=60, k=5, rng=0)
    >>> bool(abs(risk - 0.7279) < 0.005)
    True
    """
    Sigma, beta = _problem(Sigma, beta)
    p = len(beta)
    sigma, k = letters(sigma=sigma, k=k)
    alpha = checked("alpha", alpha, _arguments.PROBABILITY)
    n = scalar("n", n)
    penalty = scalar("penalty", penalty)
    rows = round(scalar("eta", eta) * n)
    require(rows, f"eta = {eta:.6g} leaves no row of n = {n:g} to a member; give more of either.")
    n_subsets = int(scalar("n_subsets", n_subsets))
    is_redrawn = penalty == 0 and alpha.sum() <= rows - 2  # the paper's rule, for least squares
    max_size = rows - 2 if is_redrawn else p
    subsets = _draw(alpha, p, n_subsets, max_size, rng=np.random.default_rng(rng))
    members = [_member(Sigma, beta, S, rows=rows, penalty=penalty) for S in subsets]
    means = _leave_one_out(Sigma, members)
    rho = float(all(member.is_ols for member in members))
    inflation = _inflation(means.trace, rows**2 / n, rows, rows, rho)
    noise = sigma[..., None] ** 2
    with np.errstate(invalid="ignore"):
        single = means.single_bias + noise * means.single_variance
        pair = means.bias + (noise + means.bias) * inflation
        risks = mean_of_pairs(single, pair, k[..., None])
    risk = risks[..., 0][()]
    if not return_std:
        return risk
    with np.errstate(invalid="ignore"):
        standard_error = np.sqrt(n_subsets - 1.0) * risks[..., 1:].std(axis=-1)
    # the jackknife of an infinite risk is nan, and its error is infinite
    standard_error = np.where(np.isnan(standard_error), inf, standard_error)
    return risk, standard_error[()]


def _draw(
    alpha: Floats, p: int, n_subsets: int, max_size: int, *, rng: np.random.Generator
) -> list[Counts]:
    """Subsets of fixed size, or coin flips that are drawn again above `max_size` columns."""
    if alpha.ndim == 0:
        size = round(float(alpha) * p)
        return [rng.permutation(p)[:size] for _ in range(n_subsets)]
    if alpha.shape != (p,):
        raise ValueError(
            f"alpha must be a number or hold p = {p} probabilities; got shape {alpha.shape}."
        )
    subsets: list[Counts] = []
    while len(subsets) < n_subsets:
        subset = np.flatnonzero(rng.random(p) < alpha)
        if len(subset) <= max_size:
            subsets.append(subset)
    return subsets


class _Means(NamedTuple):
    """Means over all N members, then over the members without each one in turn: (N + 1,) each."""

    bias: Floats  # q of pairs of different members
    trace: Floats  # T of pairs of different members
    single_bias: Floats  # q (1 + v) of single members
    single_variance: Floats  # v of single members


def _leave_one_out(Sigma: Floats, members: list[_Member]) -> _Means:
    """Average over members and pairs.

    Sums over pairs are squares of sums minus the diagonal, so nothing is quadratic in N.
    """
    errors = np.array([member.error for member in members])  # N x p
    Sigma_errors = errors @ Sigma
    q = np.sum(Sigma_errors * errors, axis=1)
    q_with_others = Sigma_errors @ errors.sum(axis=0) - q
    sum_of_inverses = np.zeros_like(Sigma)
    for member in members:
        sum_of_inverses[np.ix_(member.features, member.features)] += member.inverse
    total = Sigma @ sum_of_inverses @ Sigma
    traces = np.array([np.sum(m.inverse * total[np.ix_(m.features, m.features)]) for m in members])
    degrees = np.array([member.degrees for member in members])
    v = np.array([_single_inflation(member) for member in members])
    return _Means(
        bias=_means_of_pairs(q_with_others),
        trace=_means_of_pairs(traces - degrees),
        single_bias=_means_of_members(q * (1 + v)),
        single_variance=_means_of_members(v),
    )


def _single_inflation(member: _Member) -> float:
    """Inflation of a pair of the member with itself."""
    rho = float(member.is_ols)
    return float(_inflation(member.degrees, member.rows, member.rows, member.rows, rho))


def _means_of_pairs(with_others: Floats) -> Floats:
    """Means over ordered pairs, from sums over the N - 1 pairs of each member with the others."""
    n = len(with_others)
    total = with_others.sum()
    without_each = (total - 2 * with_others) / ((n - 1) * (n - 2))
    return np.append(total / (n * (n - 1)), without_each)


def _means_of_members(values: Floats) -> Floats:
    """Means over single members."""
    n = len(values)
    total = values.sum()
    with np.errstate(invalid="ignore"):  # inf - inf
        without_each = (total - values) / (n - 1)
    return np.append(total / n, without_each)


def ridge_covariance_risk(
    Sigma: "ArrayLike", beta: "ArrayLike", penalty: float, sigma: "ArrayLike", *, n: float
) -> "Floats":
    r"""Risk of ridge regression on all columns, any covariance, absolute penalty.

    .. math:: \frac{\sigma^2 + \mu^2\,\beta^\top(\Sigma+\mu)^{-1}\Sigma(\Sigma+\mu)^{-1}\beta}
              {1 - \mathrm{tr}[\Sigma^2(\Sigma+\mu)^{-2}]/n} - \sigma^2, \qquad
              \lambda = \mu\bigl(n - \mathrm{tr}\,\Sigma(\Sigma+\mu)^{-1}\bigr)

    This is the pair formula for one ridge member with itself, the reference for an ensemble.

    Status: asymptotic. `sigma` broadcasts.

    Examples
    --------
    >>> float(ridge_covariance_risk(np.ones(100), np.full(100, 0.1), 50.0, 0.5**0.5, n=100).round(12))
    0.5
    """
    Sigma, beta = _problem(Sigma, beta)
    (sigma,) = letters(sigma=sigma)
    n = scalar("n", n, _arguments.ROWS_OF_A_LIMIT)
    penalty = scalar("penalty", penalty)
    ridge = _member(Sigma, beta, np.arange(len(beta)), rows=n, penalty=penalty)
    return _pair_risk(Sigma, ridge, ridge, t=n, noise=sigma**2)
