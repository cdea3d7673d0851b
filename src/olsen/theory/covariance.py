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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from . import _arguments
from ._arguments import ROWS, Counts, Floats, Letter, checked, letters, require, scalar
from ._pairs import mean_of_pairs


class _Member(NamedTuple):
    features: Counts
    inverse: Floats  # Q_i, m x m
    error: Floats  # r_i, length p
    rows: float
    degrees: float  # tr(Sigma_ii Q_i Sigma_ii Q_i)
    is_ols: bool  # ordinary least squares, mu_i = 0


def _problem(function: str, Sigma: ArrayLike, beta: ArrayLike) -> tuple[Floats, Floats]:
    """The covariance as a matrix, and the signal."""
    (beta,) = letters(function, beta=beta)
    require(
        beta.ndim == 1, f"{function}: beta must be a vector of length p; got shape {beta.shape}."
    )
    Sigma = _arguments.covariance(function, Sigma)
    require(
        Sigma.shape in ((len(beta),), (len(beta), len(beta))),
        f"{function}: Sigma must be p x p (or its diagonal) for beta of length p = {len(beta)}; got"
        f" {Sigma.shape}.",
    )
    return np.diag(Sigma) if Sigma.ndim == 1 else Sigma, beta


def _columns(function: str, name: str, features: ArrayLike, p: int) -> Counts:
    """Column indices from indices or from a mask."""
    mask = np.asarray(features)
    if mask.dtype == bool:
        require(
            mask.shape == (p,),
            f"{function}: {name} as a mask must have p = {p} entries; got {mask.shape}.",
        )
        return np.flatnonzero(mask)
    numbers = _arguments.as_numbers(function, name, features)
    require(
        numbers.ndim == 1,
        f"{function}: {name} must be a vector of columns; got shape {numbers.shape}.",
    )
    column_index = Letter(f"whole numbers of columns, from 0 to {p - 1}", most=p - 1.0, whole=True)
    checked(function, name, numbers, column_index)
    columns: Counts = numbers.astype(int)
    require(
        len(np.unique(columns)) == len(columns),
        f"{function}: {name} must name every column once; got {columns.tolist()}. Remove the"
        " repeated ones.",
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
    (s,) = letters("effective_penalty", eigenvalues=eigenvalues)
    require(
        s.ndim == 1 and s.size > 0,
        f"effective_penalty: eigenvalues must be a vector; got shape {s.shape}.",
    )
    tau = scalar("effective_penalty", "n_samples", n_samples, _arguments.ROWS_OF_A_LIMIT)
    return _effective_penalty(s, tau, scalar("effective_penalty", "penalty", penalty))


def _effective_penalty(s: Floats, tau: float, penalty: float) -> float:
    if penalty == 0 and np.count_nonzero(s) <= tau:
        return 0.0
    if not np.any(s):
        return penalty / tau

    def excess(log_mu: float) -> float:
        mu = np.exp(log_mu)
        return float(mu * (tau - np.sum(s / (s + mu))) - penalty)

    low = np.log(s.max()) - 60
    high = np.log(s.max() * (len(s) / tau + 1) + penalty / tau) + 1
    if (
        excess(low) > 0
    ):  # mu is at least penalty / tau, and without penalty in reach of the smallest eigenvalue
        low = np.log(penalty / tau) - 1 if penalty > 0 else np.log(s[s > 0].min()) - 60
    return float(np.exp(brentq(excess, low, high, xtol=1e-14)))


def _member(Sigma: Floats, beta: Floats, S: Counts, rows: float, penalty: float) -> _Member:
    Sigma_SS = Sigma[np.ix_(S, S)]
    mu = 0.0
    if penalty > 0 or len(S) > rows:
        eigenvalues = np.maximum(
            np.linalg.eigvalsh(Sigma_SS), 0.0
        )  # negative eigenvalues are rounding
        mu = _effective_penalty(eigenvalues, rows, penalty)
    inverse = _inverse(Sigma_SS + mu * np.eye(len(S)), S)
    error = beta.copy()
    error[S] -= inverse @ (Sigma[S] @ beta)
    smoother = Sigma_SS @ inverse
    degrees = float(np.sum(smoother * smoother.T))
    return _Member(
        features=S, inverse=inverse, error=error, rows=rows, degrees=degrees, is_ols=mu == 0
    )


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
    has_digits = (inflation > 0) & (inflation * len(S) * np.finfo(float).eps < 1)
    require(
        has_digits,
        f"the covariance of columns {S[:8].tolist()}{' ...' * (len(S) > 8)} is singular (constant"
        " or collinear columns), and members on them have no unique fit. Remove such columns, or"
        " give a penalty.",
    )
    return inverse


def _inflation(
    trace: Floats | float, t: float, tau_i: float, tau_j: float, correction: float = 0.0
) -> Floats:
    """1 / (1 - kappa) - 1, with the finite-n correction of the denominator."""
    room = tau_i * tau_j - t * (trace + correction)
    with np.errstate(divide="ignore"):
        return np.where(room > 0, t * trace / np.where(room > 0, room, 1.0), np.inf)


def _pair_risk(Sigma: Floats, first: _Member, second: _Member, t: float, noise: Floats) -> Floats:
    Sigma_ij = Sigma[np.ix_(first.features, second.features)]
    Q_Sigma = first.inverse @ Sigma_ij
    M = Q_Sigma @ (second.inverse @ Sigma_ij.T)  # Q_i Sigma_ij Q_j Sigma_ji
    Sigma_r_i = Sigma @ first.error
    Sigma_r_j = Sigma @ second.error
    q = float(Sigma_r_i @ second.error)
    trace = float(np.trace(M))
    correction = 0.0
    if first.is_ols and second.is_ols:  # the finite-n corrections rho and w of `pair_risk`
        correction = float(np.sum(M * M.T)) / trace if trace > 0 else 0.0
        w = Sigma_r_j[first.features] @ Q_Sigma @ second.inverse @ Sigma_r_i[second.features]
        q = q + t / (first.rows * second.rows) * float(w)
    inflation = _inflation(trace, t, first.rows, second.rows, correction)
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
    Sigma, beta = _problem("pair_risk", Sigma, beta)
    S_i = _columns("pair_risk", "features_i", features_i, len(beta))
    S_j = _columns("pair_risk", "features_j", features_j, len(beta))
    (noise,) = letters("pair_risk", sigma=sigma)
    scalar("pair_risk", "penalty", penalty)
    tau_i = n if rows_i is None else rows_i
    tau_j = n if rows_j is None else rows_j
    for name, rows in (("n", n), ("rows_i", tau_i), ("rows_j", tau_j)):
        scalar("pair_risk", name, rows, ROWS)
    t = (
        tau_i * tau_j / n
        if shared_rows is None
        else scalar("pair_risk", "shared_rows", shared_rows)
    )
    require(
        0 <= t <= min(tau_i, tau_j) <= max(tau_i, tau_j) <= n,
        f"pair_risk needs shared_rows <= rows <= n; got shared_rows = {t:.6g}, rows {tau_i} and"
        f" {tau_j}, n = {n}.",
    )
    require(
        shared_rows is None or t >= tau_i + tau_j - n,
        f"pair_risk: of n = {n} rows, members of {tau_i} and {tau_j} share at least"
        f" {tau_i + tau_j - n}; got {t:.6g}.",
    )
    first = _member(Sigma, beta, S_i, rows=tau_i, penalty=penalty)
    second = _member(Sigma, beta, S_j, rows=tau_j, penalty=penalty)
    return _pair_risk(Sigma, first, second, t, noise**2)[()]


def covariance_risk(
    Sigma: "ArrayLike",
    beta: "ArrayLike",
    alpha: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n: float,
    k: "ArrayLike" = np.inf,
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
    Sigma, beta = _problem("covariance_risk", Sigma, beta)
    at_least_four = ROWS._replace(
        words="a whole number, at least 4 for a standard error", least=4.0
    )
    scalar("covariance_risk", "n_subsets", n_subsets, at_least_four)
    sigma, k = letters("covariance_risk", sigma=sigma, k=k)
    for name, value in (("n", n), ("eta", eta), ("penalty", penalty)):
        scalar("covariance_risk", name, value)
    rows = round(eta * n)
    require(
        rows >= 1,
        f"covariance_risk: eta = {eta:.6g} leaves no row of n = {n} to a member; give more of"
        " either.",
    )
    alpha = checked("covariance_risk", "alpha", alpha, _arguments.PROBABILITY)
    p = len(beta)
    max_size = (
        rows - 2 if penalty == 0 and alpha.sum() <= rows - 2 else p
    )  # the paper's rule, for least squares
    subsets = _draw(alpha, p, int(n_subsets), max_size, np.random.default_rng(rng))
    members = [_member(Sigma, beta, S, rows=rows, penalty=penalty) for S in subsets]
    bias, trace, single_bias, single_variance = _leave_one_out(Sigma, members)
    correction = float(all(member.is_ols for member in members))
    inflation = _inflation(trace, rows**2 / n, rows, rows, correction)
    noise = sigma[..., None] ** 2
    with np.errstate(invalid="ignore"):
        single = single_bias + noise * single_variance
        pair = bias + (noise + bias) * inflation
        risk = mean_of_pairs(single, pair, k[..., None])
        standard_error = np.sqrt(len(members) - 1.0) * risk[..., 1:].std(axis=-1)
    if not return_std:
        return risk[..., 0][()]
    # the jackknife of an infinite risk is nan, and its error is infinite
    return risk[..., 0][()], np.where(np.isnan(standard_error), np.inf, standard_error)[()]


def _draw(
    alpha: Floats, p: int, n_subsets: int, max_size: int, rng: np.random.Generator
) -> list[Counts]:
    """Subsets of fixed size, or coin flips that are drawn again above `max_size` columns."""
    if alpha.ndim == 0:
        size = round(float(alpha) * p)
        return [rng.permutation(p)[:size] for _ in range(n_subsets)]
    require(
        alpha.shape == (p,),
        f"alpha must be a number or hold p = {p} probabilities; got shape {alpha.shape}.",
    )
    subsets: list[Counts] = []
    while len(subsets) < n_subsets:
        subset = np.flatnonzero(rng.random(p) < alpha)
        if len(subset) <= max_size:
            subsets.append(subset)
    return subsets


def _leave_one_out(Sigma: Floats, members: list[_Member]) -> Floats:
    """Means over all N members, then over the members without each one in turn: shape (4, N + 1).

    The four quantities are q and the trace for pairs of different members, then q (1 + v) and v for
    single members. Sums over pairs are squares of sums minus the diagonal, so nothing is quadratic
    in N.
    """
    n_members = len(members)
    errors = np.array([member.error for member in members])  # N x p
    total = np.zeros_like(Sigma)
    for member in members:
        total[np.ix_(member.features, member.features)] += member.inverse
    total = Sigma @ total @ Sigma
    weighted_errors = errors @ Sigma
    q = np.sum(weighted_errors * errors, axis=1)
    degrees = np.array([member.degrees for member in members])
    traces = np.array([np.sum(m.inverse * total[np.ix_(m.features, m.features)]) for m in members])
    v = np.array(
        [float(_inflation(m.degrees, m.rows, m.rows, m.rows, float(m.is_ols))) for m in members]
    )
    pairs = np.stack(
        [weighted_errors @ errors.sum(axis=0) - q, traces - degrees]
    )  # each member with the N - 1 others
    single = np.stack([q * (1 + v), v])
    pair_sums = np.column_stack([pairs.sum(axis=1), pairs.sum(axis=1)[:, None] - 2 * pairs])
    with np.errstate(invalid="ignore"):
        single_sums = np.column_stack([single.sum(axis=1), single.sum(axis=1)[:, None] - single])
    counts = np.concatenate([[n_members], np.full(n_members, n_members - 1)])
    return np.concatenate([pair_sums / (counts * (counts - 1)), single_sums / counts])


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
    Sigma, beta = _problem("ridge_covariance_risk", Sigma, beta)
    (noise,) = letters("ridge_covariance_risk", sigma=sigma)
    scalar("ridge_covariance_risk", "n", n, _arguments.ROWS_OF_A_LIMIT)
    scalar("ridge_covariance_risk", "penalty", penalty)
    member = _member(Sigma, beta, np.arange(len(beta)), n, penalty)
    return _pair_risk(Sigma, member, member, n, noise**2)[()]
