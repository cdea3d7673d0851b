r"""Subset size and ridge penalty on a data set: the ridge regression of an ensemble, and the
ensemble of a ridge.

Given `X`, with :math:`G = X^\top X`, the large ensemble of least-squares fits on columns drawn with
inclusion probabilities :math:`\alpha_j` applies :math:`B = E[S G_{SS}^{-1} S^\top]` to
:math:`X^\top y`, and exactly
:math:`[BG]_{jj} = \alpha_j`. The ridge smoother :math:`(G+D)^{-1}` with the diagonal penalty that satisfies
the same `p` equations,

.. math:: [G(G+D)^{-1}]_{jj} = \alpha_j ,

is the ensemble exactly for determinantal subsets, and close to it for independently drawn ones.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve, qr

from ._execution import memory
from ._execution.arrays import row_products
from .subsets import Determinantal, penalty_of_size
from .theory import _arguments
from .theory._arguments import LEAST, MOST, Counts, Floats, as_numbers

__all__ = [
    "determinantal_penalty",
    "determinantal_risk",
    "inclusion_probabilities",
    "isotropic_penalty",
    "ridge_penalty",
]

MAX_NEWTON_STEPS = 50  # fewer than ten were needed on all data tried


class _System(NamedTuple):
    """The convex function of `ridge_penalty` at one point."""

    value: float
    gradient: Floats
    hessian: Floats


def ridge_penalty(X: ArrayLike, max_features: ArrayLike, *, center: bool = True) -> Floats:
    r"""The diagonal ridge penalty equivalent to a large ensemble on the rows X.

    .. math:: [G(G+D)^{-1}]_{jj} = \alpha_j \quad\text{for every } j, \qquad \text{uniform: } \alpha_j = m/p

    solved as the minimum of the convex
    :math:`f(u) = \log\det(G + \mathrm{diag}\,e^u) - \sum_j (1-\alpha_j) u_j` by Newton steps in
    :math:`u = \log d`, until no :math:`\alpha_j` is off by more than 1e-10. With :math:`A = (G+D)^{-1}`: gradient
    :math:`d_jA_{jj} - (1-\alpha_j)`, Hessian :math:`\mathrm{diag}(d_jA_{jj}) - d_iA_{ij}^2d_j`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    max_features : int, float or array-like of shape (n_features,)
        Columns per member as a count or as a fraction, or one inclusion probability per column.
    center : bool, default=True
        Centre the columns first, as members with an intercept do.

    Returns
    -------
    penalty : ndarray of shape (n_features,)
        The diagonal of D; ``solve(X.T @ X + diag(penalty), X.T @ y)`` approximates the ensemble.

    Notes
    -----
    Status: the equations are exact for the ensemble; that D alone describes it is heuristic, and
    fails visibly for banded covariances. Scaling a column by c scales its penalty by c**2. Every
    Newton step solves a system of as many equations as columns. For members that subsample rows
    instead, use ``ridge_penalty(X.T, ..., center=False)``.

    Examples
    --------
    Orthogonal columns, where every number can be checked by hand:

    >>> ridge_penalty(np.sqrt(2) * np.eye(3), 0.5, center=False).round(10)
    array([2., 2., 2.])
    """
    X = _columns(X, center)
    n, p = X.shape
    _refuse_collinear(X)
    alpha = _probabilities(max_features, p)
    rank = min(n - bool(center), p)
    if alpha.sum() >= rank * (1 - 1e-9):
        raise ValueError(
            f"members must have fewer columns than the rank of X, at most {rank}; the probabilities"
            f" sum to {alpha.sum():.6g}. For minimum-norm members use ridge_penalty(X.T,"
            " max_samples, center=False)."
        )
    memory.require(32.0 * p**2, f"the Hessian of {p} columns", "Use isotropic_penalty.")
    squares: Floats = np.sum(X**2, axis=0)
    unit = _short(X / np.sqrt(squares))
    d: Floats = np.exp(_newton(unit, alpha, n))
    return squares * d


def inclusion_probabilities(
    X: ArrayLike, penalty: ArrayLike, *, center: bool = True, check_collinear: bool = True
) -> Floats:
    r"""Inclusion probabilities with which the large ensemble reproduces ridge regression.

    .. math:: \alpha_j = [G(G+\lambda I)^{-1}]_{jj}

    Their sum is the degrees of freedom of the ridge fit. Dropout needs other probabilities,
    :math:`G_{jj}/(G_{jj}+\lambda)` (the paper's equations (39) and (40)); see `DropoutRegressor`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    penalty : float or array-like of shape (n_features,)
        Ridge penalty, positive; an array is a diagonal penalty, the inverse of `ridge_penalty`.
    center : bool, default=True
        Centre the columns first, as members with an intercept do.
    check_collinear : bool, default=True
        Refuse exactly collinear columns: ridge can live with them, least-squares members cannot.

    Returns
    -------
    probabilities : ndarray of shape (n_features,)

    Notes
    -----
    Status: exact as degrees of freedom; heuristic as a recipe for the ensemble (answers the open
    question of the paper's section 5.1 on non-identity covariance; see
    `olsen.theory.ridge_matched_probabilities` for the population form).

    Examples
    --------
    >>> inclusion_probabilities(np.diag([1.0, 2.0, 3.0]), 1.0, center=False)
    array([0.5, 0.8, 0.9])
    """
    X = _columns(X, center)
    p = X.shape[1]
    way_out = "Without penalty every probability is 1."
    positive = _arguments.LETTERS["penalty"]._replace(also=np.nan, way_out=way_out)
    penalty = _arguments.checked("penalty", penalty, positive)
    if penalty.shape not in ((), (p,)):
        raise ValueError(
            f"penalty must be a number or have one entry for each of {p} columns; got shape"
            f" {penalty.shape}."
        )
    if check_collinear:
        _refuse_collinear(X)
    W = _short(X / np.sqrt(penalty))
    factor = cho_factor(np.eye(len(W)) + W @ W.T, lower=True)
    probabilities = np.sum(W * cho_solve(factor, W), axis=0)
    return np.asarray(np.clip(probabilities, 0.0, 1.0))


def isotropic_penalty(X: ArrayLike, max_features: ArrayLike, *, center: bool = True) -> float:
    r"""The single ridge penalty with as many degrees of freedom as a member has columns.

    .. math:: \mathrm{tr}\,G(G+\lambda I)^{-1} = m

    It is cruder than `ridge_penalty` unless the columns are standardised and weakly correlated, but
    `sklearn.linear_model.Ridge` takes it.

    Status: heuristic; asymptotically exact for identity covariance
    (`olsen.theory.penalty_from_alpha`).

    Examples
    --------
    >>> round(isotropic_penalty(np.sqrt(2) * np.eye(4), 2, center=False), 10)
    2.0
    """
    X = _columns(X, center)
    size = float(_probabilities(max_features, X.shape[1]).sum())
    values = np.linalg.svd(X, compute_uv=False) ** 2
    rounding = values.max() * max(X.shape) * np.finfo(float).eps
    values = values[values > rounding]
    rank = len(values)
    if size >= rank:
        raise ValueError(
            f"{size:.6g} columns per member need a rank above that; the rank of X is {rank}."
        )
    return penalty_of_size(values, size)


def determinantal_penalty(
    X: ArrayLike, max_features: int | float, *, center: bool = True
) -> Floats:
    r"""The diagonal ridge penalty that the mean of all determinantal members has, for any data.

    .. math:: E[b_S] = (G + D)^{-1} X^\top y, \qquad D = \lambda\, \mathrm{diag}(G), \qquad
              \mathrm{tr}\, G (G + D)^{-1} = m

    Back from a penalty, the expected size is the sum of `inclusion_probabilities`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    max_features : int or float
        Expected columns per member, as a count or as a fraction.
    center : bool, default=True
        Centre the columns first, as members with an intercept do.

    Returns
    -------
    penalty : ndarray of shape (n_features,)
        The diagonal of D; infinite for constant columns, which are never drawn.

    Notes
    -----
    Status: theorem, for every X, y and rank; dependent columns included. See
    `olsen.subsets.Determinantal`.

    Examples
    --------
    >>> determinantal_penalty(np.diag([1.0, 2.0, 3.0]), 0.5, center=False).round(10)
    array([1., 4., 9.])
    """
    X = _columns(X, center)
    process = _process(X, max_features)
    with np.errstate(divide="ignore"):
        return process.penalty / process.prior_variances


def determinantal_risk(
    X: ArrayLike,
    beta: ArrayLike,
    max_features: float,
    sigma: ArrayLike,
    *,
    Sigma: ArrayLike | None = None,
    k: ArrayLike = np.inf,
    center: bool = True,
    n_subsets: int = 1000,
    rng: np.random.Generator | int | None = 0,
) -> Floats:
    r"""Risk of `k` determinantal members on the rows X: that of ridge regression, plus the excess
    of a finite number.

    With :math:`M = (G + D)^{-1}`, D the `determinantal_penalty`, and :math:`P_S` the inverse of a
    member's Gram matrix, zero outside its columns S,

    .. math:: R_\infty = \|(M G - I)\beta\|_\Sigma^2 + \sigma^2\,\mathrm{tr}(\Sigma M G M), \quad
              R_1 = E_S\bigl[\|(P_S G - I)\beta\|_\Sigma^2 + \sigma^2\,\mathrm{tr}(\Sigma P_S)\bigr], \quad
              R_k = R_\infty + \frac{R_1 - R_\infty}{k} ,

    over the noise and the draw of members, for new, centred rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    beta : array-like of shape (n_features,)
        The signal.
    max_features : int or float
        Expected columns per member, as a count or as a fraction.
    sigma : float or array
        Standard deviation of the noise. Broadcasts with `k`.
    Sigma : array-like of shape (n_features, n_features), default=None
        Covariance of the rows to be predicted; None: the identity.
    k : int, inf or array, default=inf
        Number of members.
    center : bool, default=True
        Centre the columns first, as members with an intercept do.
    n_subsets : int, default=1000
        Number of subsets that the risk of a member is averaged over, for finite `k`.
    rng : int, numpy Generator or None, default=0
        Seed of the subsets, or generator of a seed.

    Returns
    -------
    risk : ndarray
        Shape of `sigma` and `k` broadcast together.

    Notes
    -----
    Status: theorem for ``k=inf``, whatever X; for finite `k` exact but for the Monte-Carlo error of
    the mean over `n_subsets` members, which is divided by `k`.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((40, 10))
    >>> beta = np.full(10, 10**-0.5)
    >>> risk = determinantal_risk(X, beta, 5, 0.5, k=[1, 10, np.inf])
    >>> bool(risk[0] > risk[1] > risk[2])
    True
    """
    X = _columns(X, center)
    p = X.shape[1]
    beta, sigma, k = _arguments.letters(beta=beta, sigma=sigma, k=k)
    Sigma = np.eye(p) if Sigma is None else _arguments.covariance(Sigma)
    if beta.shape != (p,) or Sigma.shape != (p, p):
        raise ValueError(
            f"determinantal_risk: X has {p} columns, but beta has shape {beta.shape} and Sigma"
            f" {Sigma.shape}."
        )
    count = _arguments.ROWS._replace(words="a whole number")
    n_subsets = int(_arguments.scalar("n_subsets", n_subsets, count))
    process = _process(X, max_features)
    G = row_products(X.T)
    M = process.mean_inverse()
    error = M @ (G @ beta) - beta
    bias = error @ Sigma @ error
    variance = np.sum(Sigma * (M @ G @ M))
    limit = bias + sigma**2 * variance
    if np.all(np.isinf(k)):
        return np.asarray(limit + 0 / k)[()]
    members = process.draw(0, n_subsets, rng=rng)
    terms = [_member_terms(G, Sigma, beta, S) for S in members]
    bias, variance = np.mean(terms, axis=0)
    single = bias + sigma**2 * variance
    return np.asarray(limit + (single - limit) / k)[()]


def _member_terms(G: Floats, Sigma: Floats, beta: Floats, S: Counts) -> tuple[float, float]:
    """Bias and variance, for noise of variance one, of least squares on the columns S: P G P = P."""
    P = np.linalg.inv(G[np.ix_(S, S)])
    error = -beta
    error[S] += P @ (G[S] @ beta)
    bias = error @ Sigma @ error
    variance = np.sum(Sigma[np.ix_(S, S)] * P)
    return float(bias), float(variance)


def _process(X: Floats, max_features: ArrayLike) -> Determinantal:
    n, p = X.shape
    size = float(_probabilities(max_features, p).sum())
    if p > n:
        return Determinantal.from_rows(X, size)
    return Determinantal.from_gram(X.T @ X, size)


def _columns(X: ArrayLike, center: bool) -> Floats:
    """The columns as finite floats, centred if asked for, in units in which squares keep digits."""
    X = as_numbers("X", X.toarray() if hasattr(X, "toarray") else X)
    is_finite = np.isfinite(X)
    if X.ndim != 2 or X.size == 0 or not is_finite.all():
        raise ValueError(
            "X must be a two-dimensional array with rows and columns, all finite; got shape"
            f" {X.shape}, {np.sum(~is_finite)} entries nan or infinite."
        )
    largest = np.abs(X).max(axis=0)
    is_in_range = (largest == 0) | ((largest >= LEAST) & (largest <= MOST))
    if not is_in_range.all():
        column = np.argmin(is_in_range)
        raise ValueError(
            f"column {column} of X is at most {largest[column]:.6g}, where squares lose digits:"
            f" from {LEAST:g} to {MOST:g} they keep them. Use other units."
        )
    if not center:
        return X
    centred: Floats = X - X.mean(axis=0)
    # A constant column is rounding errors after centring; make it exactly zero.
    rounding = 8 * np.finfo(float).eps * np.linalg.norm(X, axis=0)
    centred[:, np.linalg.norm(centred, axis=0) <= rounding] = 0.0
    return centred


def _probabilities(max_features: ArrayLike, p: int) -> Floats:
    """One inclusion probability per column from a count, a fraction or an array."""
    alpha = as_numbers("max_features", max_features)
    if alpha.ndim == 0:
        is_count = np.asarray(max_features).dtype.kind in "iu"
        alpha = np.full(p, alpha / p if is_count else alpha)
    if alpha.shape != (p,) or not np.all((alpha >= LEAST) & (alpha < 1)):
        raise ValueError(
            f"max_features must be a count in [1, {p - 1}], a fraction in (0, 1), or {p}"
            " probabilities in (0, 1), so that every column is sometimes in and sometimes out; got"
            f" {max_features!r}."
        )
    return alpha


def _refuse_collinear(X: Floats) -> None:
    """Raise, naming the columns, if columns are constant, proportional, or (n >= p) a combination
    of others.
    """
    n, p = X.shape
    norms = np.linalg.norm(X, axis=0)
    constant = np.flatnonzero(norms == 0).tolist()
    if constant:
        raise ValueError(f"columns {constant} are constant (zero after centring): remove them.")
    unit = X / norms
    relation = _combination(unit) if n >= p else _proportional(unit)
    if relation:
        column, combined = relation
        raise ValueError(
            f"column {column} is an exact linear combination of columns {combined}: least squares"
            " on all of them has no unique solution, and no penalty matches it. Remove or merge"
            " them."
        )


def _combination(unit: Floats) -> tuple[int, list[int]] | None:
    """The first dependent column and the columns it depends on, from a pivoted QR; None at full
    rank.
    """
    p = unit.shape[1]
    # eigenvalues above 1e-10 exclude dependence, and the Gram matrix shows this at a fraction of
    # the cost
    with suppress(np.linalg.LinAlgError):
        np.linalg.cholesky(unit.T @ unit - 1e-10 * np.eye(p))
        return None
    triangle, order = qr(unit, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle[:p]))
    rounding = max(unit.shape) * np.finfo(float).eps * pivots[0]
    rank = int(np.sum(pivots > rounding))
    if rank == p:
        return None
    weights = np.linalg.solve(triangle[:rank, :rank], triangle[:rank, rank])
    combined = order[np.flatnonzero(np.abs(weights) > 1e-8)]
    return int(order[rank]), sorted(combined.tolist())


def _proportional(unit: Floats) -> tuple[int, list[int]] | None:
    """Two proportional columns of a wide matrix, found as neighbours along one fixed direction;
    None without any.
    """
    n = len(unit)
    direction = np.cos(np.arange(1, n + 1) ** 2)
    score = np.abs(direction @ unit)
    order = np.argsort(score)
    candidates = np.flatnonzero(np.diff(score[order]) <= 1e-12 * np.sqrt(n))
    for i, j in zip(order[candidates].tolist(), order[candidates + 1].tolist(), strict=True):
        cosine = abs(unit[:, i] @ unit[:, j])
        if abs(cosine - 1) <= 1e-14 * n:
            return max(i, j), [min(i, j)]
    return None


def _short(X: Floats) -> Floats:
    """A matrix with the same Gram matrix and no more rows than columns."""
    return np.asarray(np.linalg.qr(X, mode="r")) if X.shape[0] > X.shape[1] else X


def _newton(X: Floats, alpha: Floats, n_rows: int) -> Floats:
    """Minimise f over u = log d from the isotropic guess; steps clipped to 2, halved while f would
    rise.
    """
    u: Floats = np.log((1 - alpha) / alpha * (1 - alpha.sum() / (n_rows + 1.0)))
    system = _system(X, u, alpha)
    for _ in range(MAX_NEWTON_STEPS + 1):
        if np.abs(system.gradient).max() <= 1e-10:
            return u
        step = np.linalg.solve(system.hessian, system.gradient)
        step = np.clip(step, -2.0, 2.0)
        highest = system.value + 1e-9 * (1 + abs(system.value))
        for _ in range(30):
            trial = _system(X, u - step, alpha)
            if trial.value <= highest:
                break
            step = step / 2
        u = u - step
        system = trial
    worst = np.argsort(u)[:5].tolist()
    raise ValueError(
        f"no penalty found in {MAX_NEWTON_STEPS} Newton steps (largest error"
        f" {np.abs(system.gradient).max():.2g}): that of columns {worst} tends to zero, so they are"
        " nearly collinear. Remove or merge them, or ask for fewer columns."
    )


def _system(X: Floats, u: Floats, alpha: Floats) -> _System:
    """f, its gradient and its Hessian at u = log d."""
    W = X * np.exp(-u / 2)
    factor = np.linalg.cholesky(np.eye(len(X)) + W @ W.T)
    MW = cho_solve((factor, True), W)  # the residual is I - W'MW
    exclusion = 1 - np.sum(W * MW, axis=0)  # d_j A_jj
    log_det = 2 * np.sum(np.log(np.diag(factor)))
    residual = np.eye(len(u)) - W.T @ MW
    return _System(
        value=log_det + alpha @ u,
        gradient=exclusion - (1 - alpha),
        hessian=np.diag(exclusion) - residual**2,
    )
