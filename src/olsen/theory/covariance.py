r"""Any covariance: the pair formula.

Write :math:`\Sigma_{ii} = \Sigma[S_i, S_i]` and :math:`Q_i = (\Sigma_{ii} + \mu_i I)^{-1}`, where
:math:`\mu_i = 0` for least squares, and otherwise :math:`\lambda = \mu_i(\tau_i -
\mathrm{tr}\,\Sigma_{ii}Q_i)`: ridge members with penalty
:math:`\lambda`, minimum-norm members with :math:`\lambda = 0` and fewer rows than columns. Then

.. math:: R_{ij} + \sigma^2 = \frac{\sigma^2 + r_i^\top\Sigma r_j}{1 - \kappa_{ij}}, \qquad
          r_i = \beta - S_i Q_i \Sigma_{i,:}\beta, \qquad
          \kappa_{ij} = \frac{t}{\tau_i\tau_j}\,\mathrm{tr}[Q_i\Sigma_{ij}Q_j\Sigma_{ji}]

with :math:`t` shared rows. For new rows of another covariance :math:`\Sigma^t` (`Sigma_test`)

.. math:: R_{ij} = r_i^\top\Sigma^t r_j + \frac{t}{\tau_i\tau_j}\,\mathrm{tr}[Q_i\Sigma_{ij}Q_j\Sigma^t_{ji}]
          \,\frac{\sigma^2 + r_i^\top\Sigma r_j}{1 - \kappa_{ij}}

A covariance may be given as a vector: its diagonal. `penalty` is the absolute :math:`\lambda` of
:math:`\|y-Xb\|^2+\lambda\|b\|^2` on the rows of the member.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from . import _arguments
from ._arguments import ROWS, Counts, Floats, Letter, checked, letters, require, scalar


class Problem(NamedTuple):
    """Covariance of the rows, signal, and covariance of the rows to be predicted."""

    Sigma: Floats
    beta: Floats
    test: Floats


class Member(NamedTuple):
    """A member, and what its pairs with other members need of it."""

    features: Counts
    inverse: Floats  # Q_i, m x m
    error: Floats  # r_i, length p
    rows: float  # tau_i
    is_ols: bool  # ordinary least squares, mu_i = 0


def checked_problem(Sigma: ArrayLike, beta: ArrayLike, Sigma_test: ArrayLike | None) -> Problem:
    """Covariances as matrices, and the signal."""
    (beta,) = letters(beta=beta)
    require(beta.ndim == 1, f"beta must be a vector of length p; got shape {beta.shape}.")
    p = len(beta)
    Sigma = _arguments.covariance(Sigma)
    if len(Sigma) != p:
        raise ValueError(
            f"Sigma must be p x p (or its diagonal) for beta of length p = {p}; got {Sigma.shape}."
        )
    test = Sigma if Sigma_test is None else _arguments.covariance(Sigma_test, "Sigma_test")
    if len(test) != p:
        raise ValueError(f"Sigma_test must be as Sigma, {p} x {p}; got {test.shape}.")
    return Problem(Sigma, beta, test)


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


def member_of(problem: Problem, S: Counts, *, rows: float, penalty: float) -> Member:
    """The member on columns S with a number of rows."""
    Sigma, beta, _ = problem
    Sigma_SS = Sigma[np.ix_(S, S)]
    mu = 0.0
    if penalty > 0 or len(S) > rows:
        eigenvalues = np.linalg.eigvalsh(Sigma_SS)
        eigenvalues = np.maximum(eigenvalues, 0.0)  # negative eigenvalues are rounding
        mu = _effective_penalty(eigenvalues, rows, penalty)
    Q = _inverse(Sigma_SS + mu * np.eye(len(S)), S)
    error = beta.copy()
    error[S] -= Q @ (Sigma[S] @ beta)
    return Member(features=S, inverse=Q, error=error, rows=rows, is_ols=mu == 0)


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


class PairTerms(NamedTuple):
    """Terms of a pair of members of the risk b + (sigma^2 + q) v."""

    bias: Floats  # b, in the covariance of new rows
    unexplained: Floats  # q, in the covariance of the data
    inflation: Floats  # v

    def risk(self, noise: Floats) -> Floats:
        """Risk at this variance of the noise."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.bias + (noise + self.unexplained) * self.inflation)[()]


def inflation(
    trace: Floats | float,
    test_trace: Floats | float,
    *,
    t: float,
    rows: float,
    correction: Floats | float,
) -> Floats:
    """The factor v of members that share t rows: `rows` is the product of their numbers of rows,
    and `correction` the finite-n correction of the denominator.
    """
    room = rows - t * (trace + correction)
    has_room = room > 0
    with np.errstate(divide="ignore"):
        v = t * test_trace / np.where(has_room, room, 1.0)
    return np.where(has_room, v, np.inf)


def pair_terms(problem: Problem, first: Member, second: Member, t: float) -> PairTerms:
    """Terms of `pair_risk` of two members that share t rows."""
    Sigma, _, test = problem
    Q_i = first.inverse
    Q_j = second.inverse
    pair = np.ix_(first.features, second.features)
    M = Q_i @ Sigma[pair] @ Q_j
    T = float(np.sum(M * Sigma[pair]))
    Sigma_r_i = Sigma @ first.error
    Sigma_r_j = Sigma @ second.error
    q = float(Sigma_r_i @ second.error)
    bias = float(first.error @ test @ second.error)
    rows = first.rows * second.rows
    rho = 0.0
    if first.is_ols and second.is_ols:
        overlap = M @ Sigma[pair].T
        rho = float(np.sum(overlap * overlap.T)) / T if T > 0 else 0.0
        left = Sigma_r_j[first.features] @ Q_i
        right = Q_j @ Sigma_r_i[second.features]
        q += t / rows * float(left @ Sigma[pair] @ right)
        bias += t / rows * float(left @ test[pair] @ right)
    v = inflation(T, np.sum(M * test[pair]), t=t, rows=rows, correction=rho)
    return PairTerms(np.asarray(bias), np.asarray(q), v)


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
    Sigma_test: "ArrayLike | None" = None,
) -> "Floats":
    r"""Risk of a given pair of members, :math:`E\,(b_i-\beta)^\top\Sigma(b_j-\beta)`.

    .. math:: R_{ij} = \Bigl(\sigma^2 + q + \frac{t\,w}{\tau_i\tau_j}\Bigr)
              \Bigl(1 + \frac{t\,T}{\tau_i\tau_j - t(T+\rho)}\Bigr) - \sigma^2

    for two least-squares members, with :math:`q = r_i^\top\Sigma r_j`, :math:`M =
    Q_i\Sigma_{ij}Q_j\Sigma_{ji}`,
    :math:`T = \mathrm{tr}\,M`, and the finite-n corrections :math:`\rho = \mathrm{tr}\,M^2/T`,
    :math:`w = (\Sigma_{i,:}r_j)^\top Q_i\Sigma_{ij}Q_j(\Sigma_{j,:}r_i)`, both trivial
    (:math:`\rho = 1, w = 0`) when the projectors commute. When a member is minimum-norm or ridge:
    :math:`(\sigma^2+q)/(1-tT/(\tau_i\tau_j)) - \sigma^2`. Equations (12) and (13) of the paper are
    its bias and variance.

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
    Sigma_test : array of shape (p, p) or (p,), optional
        Covariance of the rows to be predicted, or its diagonal. Default: `Sigma`.

    Notes
    -----
    Members of ridge penalties that differ, and lists of members: `theory.pair_risks`.

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
    problem = checked_problem(Sigma, beta, Sigma_test)
    S_i = _columns("features_i", features_i, len(problem.beta))
    S_j = _columns("features_j", features_j, len(problem.beta))
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
    first = member_of(problem, S_i, rows=tau_i, penalty=penalty)
    second = member_of(problem, S_j, rows=tau_j, penalty=penalty)
    return pair_terms(problem, first, second, t).risk(sigma**2)


def pair_risks(
    Sigma: "ArrayLike",
    beta: "ArrayLike",
    features: "Sequence[ArrayLike]",
    sigma: float,
    *,
    n: float,
    rows: "ArrayLike | None" = None,
    penalty: "ArrayLike" = 0.0,
    Sigma_test: "ArrayLike | None" = None,
) -> "Floats":
    r"""Risks of all pairs of given members, which may differ in columns, rows and penalty.

    .. math:: R_{ij} = E\,(b_i-\beta)^\top\Sigma(b_j-\beta), \qquad i, j = 1, \dots, k

    The ensemble has the mean of all entries as its risk, and :math:`w^\top R w` with weights w
    (`theory.best_weights`).

    Parameters
    ----------
    Sigma, beta, n, Sigma_test
        As in `pair_risk`.
    features : list of arrays of column indices, or of boolean masks
        Columns of each member.
    sigma : float
        Noise standard deviation.
    rows : int or array of shape (k,), optional
        Rows of each member, drawn independently. Default: all n.
    penalty : float or array of shape (k,)
        Ridge penalty of each member, absolute.

    Notes
    -----
    Status: as `pair_risk`. With penalties it is the formula of Ruben and Pehlevan (2023) for
    members on given columns.

    Examples
    --------
    >>> Sigma = [[1.0, 0.5], [0.5, 1.0]]
    >>> pair_risks(
    ...     Sigma, [1.0, 0.0], [[0], [1]], 1.0, n=12, penalty=[0.0, 2.0]
    ... ).round(4)
    array([[0.1   , 0.018 ],
           [0.018 , 0.8677]])
    """
    problem = checked_problem(Sigma, beta, Sigma_test)
    columns = [_columns("features", S, len(problem.beta)) for S in features]
    k = len(columns)
    n = scalar("n", n)
    sigma = scalar("sigma", sigma)
    (penalties,) = letters(penalty=penalty)
    tau = checked("rows", n if rows is None else rows, ROWS)
    require(tau <= n, f"rows ({np.max(tau):g}) cannot exceed n = {n:g}.")
    for name, values in (("rows", tau), ("penalty", penalties)):
        require(
            values.shape in ((), (k,)),
            f"{name} must be a number or have one entry for each of {k} members; got shape"
            f" {values.shape}.",
        )
    tau = np.broadcast_to(tau, k)
    penalties = np.broadcast_to(penalties, k)
    members = [
        member_of(problem, S, rows=float(tau[i]), penalty=float(penalties[i]))
        for i, S in enumerate(columns)
    ]
    risks = np.empty((k, k))
    for i, j in zip(*np.tril_indices(k), strict=True):
        t = tau[i] if i == j else tau[i] * tau[j] / n
        terms = pair_terms(problem, members[i], members[j], float(t))
        risks[i, j] = risks[j, i] = terms.risk(np.asarray(sigma**2))
    return risks


def ridge_covariance_risk(
    Sigma: "ArrayLike",
    beta: "ArrayLike",
    penalty: float,
    sigma: "ArrayLike",
    *,
    n: float,
    Sigma_test: "ArrayLike | None" = None,
) -> "Floats":
    r"""Risk of ridge regression on all columns, any covariance, absolute penalty.

    .. math:: \frac{\sigma^2 + \mu^2\,\beta^\top(\Sigma+\mu)^{-1}\Sigma(\Sigma+\mu)^{-1}\beta}
              {1 - \mathrm{tr}[\Sigma^2(\Sigma+\mu)^{-2}]/n} - \sigma^2, \qquad
              \lambda = \mu\bigl(n - \mathrm{tr}\,\Sigma(\Sigma+\mu)^{-1}\bigr)

    This is the pair formula for one ridge member with itself, the reference for an ensemble.
    `Sigma_test`: covariance of the rows to be predicted, as in `pair_risk`.

    Status: asymptotic. `sigma` broadcasts.

    Examples
    --------
    >>> float(
    ...     ridge_covariance_risk(
    ...         np.ones(100), np.full(100, 0.1), 50.0, 0.5**0.5, n=100
    ...     ).round(12)
    ... )
    0.5
    """
    problem = checked_problem(Sigma, beta, Sigma_test)
    (sigma,) = letters(sigma=sigma)
    n = scalar("n", n, _arguments.ROWS_OF_A_LIMIT)
    penalty = scalar("penalty", penalty)
    ridge = member_of(problem, np.arange(len(problem.beta)), rows=n, penalty=penalty)
    return pair_terms(problem, ridge, ridge, n).risk(sigma**2)


def covariance_row_path(
    eigenvalues: "ArrayLike", penalty: "ArrayLike", n_samples: "ArrayLike", *, n: float
) -> "Floats":
    r"""The penalty of members on `n_samples` rows that equals ridge regression of this penalty on all
    n rows, any covariance.

    .. math:: \lambda_\tau = \mu\Bigl(\tau - \sum_l \frac{s_l}{s_l+\mu}\Bigr), \qquad
              \lambda = \mu\Bigl(n - \sum_l \frac{s_l}{s_l+\mu}\Bigr)

    with the eigenvalues :math:`s_l` of the covariance. A large ensemble of ridge regressions on all
    columns depends on penalty and rows through the effective penalty :math:`\mu` alone, so that it
    has the risk of `ridge_covariance_risk` at every point of the path, for every signal, noise and
    covariance of new rows. The path ends without penalty at as many rows as ridge regression has
    degrees of freedom, where members interpolate. Penalties are absolute; for identity covariance, and in
    fractions: `theory.row_path`. For random columns only identity covariance has such a path
    (`theory.column_path`); elsewhere members on some of the columns shrink other directions than
    ridge regression does.

    Status: asymptotic. `penalty` and `n_samples` broadcast. Du, Patil and Kuchibhotla (2023), Patil
    and Du (2023).

    Examples
    --------
    >>> covariance_row_path([1.0, 1.0, 1.0, 1.0], 2.0, [4.0, 3.0, 2.0], n=4).round(12)
    array([2., 1., 0.])
    """
    s, penalty = letters(eigenvalues=eigenvalues, penalty=penalty)
    require(s.ndim == 1 and s.size, f"eigenvalues must be a vector; got shape {s.shape}.")
    n = scalar("n", n, _arguments.ROWS_OF_A_LIMIT)
    tau = checked("n_samples", n_samples, _arguments.ROWS_OF_A_LIMIT)
    _arguments.require_at_most("n", np.asarray(n), n_samples=tau)
    mu = np.reshape([_effective_penalty(s, n, value) for value in penalty.flat], penalty.shape)
    shrunk = np.where(s > 0, s, np.inf)  # constant columns have no degrees of freedom
    degrees = np.sum(s / (shrunk + mu[..., None]), axis=-1)
    rows_to_spare = tau - degrees
    require(
        rows_to_spare >= -1e-12 * n,
        "covariance_row_path ends without penalty at as many rows as there are degrees of freedom,"
        f" {np.max(degrees):.6g}; got n_samples = {np.min(tau):.6g}.",
    )
    return np.asarray(mu * np.maximum(0, rows_to_spare))[()]
