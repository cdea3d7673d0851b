r"""What must hold for every case: an answer within the bound of perturbation theory, or a refusal
in known words.

A member of condition number :math:`\kappa` (columns of unit length), solution of size :math:`\|D
b\|`, residual r and columns whose means are f times their lengths may be off by

.. math:: E = \varepsilon\, n\, (1 + f) \left( \kappa (\|D b\| + \|y\|) + \kappa^2 \|r\| \right)

in the units of y, whatever stable method solves it; members solved from a trusted Gram matrix by
:math:`\varepsilon n (1 + f) \kappa^2 \|D b\|` more. ``LIMIT`` is the factor allowed on top. Where E itself is large the
problem has no answer in double precision, and only what does not depend on one is checked.
"""

from __future__ import annotations

import importlib
import os
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

import olsen

from .exact import EPS, LONG, Member, least_squares

LIMIT = 10.0
UNDECIDED = 1e-6  # relative error of E from which a case says nothing
GRAM = 1e7  # squared condition number up to which a Gram matrix may be trusted
SUBNORMAL = 16 * float(
    np.finfo(np.float64).smallest_subnormal
)  # what results below 1e-308 are rounded to
EPS32 = float(np.finfo(np.float32).eps)
REFUSALS = (
    "keeps squares in the range of double precision",
    "which the intercept uses up",
    "is for members with fewer rows than columns",
    "rows with positive weight are needed",
    "coin flips were rejected",
    "at most",  # sizes beyond the interpolation peak, in the tuned ensemble
)


@dataclass
class Found:
    """What came of a case."""

    outcome: str  # "right", "refused", "undecided", "WRONG"
    error: float = 0.0  # over its bound
    lapack: float = 0.0  # the same, of LAPACK's QR
    words: str = ""


def run(case) -> Found:
    """Every check that applies to a case."""
    X, y, weight = case.data()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("error", DeprecationWarning)
            return compare(case, X, y, weight)
    except Exception as error:
        matching_refusals = [
            words for words in REFUSALS if isinstance(error, ValueError) and words in str(error)
        ]
        return (
            Found("refused", words=matching_refusals[0])
            if matching_refusals
            else Found("WRONG", words=f"{type(error).__name__}: {error}")
        )


def compare(case, X, y, weight):
    if case.engine == "float32":
        X = X.astype(np.float32)
    model = fitted(case, X, y, weight)
    weighted_rows = np.arange(case.n) if weight is None else np.flatnonzero(weight > 0)
    features = model.feature_subsets_
    samples = model.sample_subsets_
    Y = np.asarray(y, dtype=float).reshape(case.n, -1)
    members = []
    for i in range(case.k):
        rows = np.intersect1d(weighted_rows, samples[i])
        w = None if weight is None else weight[rows]
        members.append(
            (features[i], Member(X[np.ix_(rows, features[i])], Y[rows], w, case.fit_intercept))
        )
    bound, undecided = coefficient_bound(case, members, X)
    exact = np.zeros((case.p, Y.shape[1]), dtype=LONG)
    for columns, m in members:
        exact[columns] += m.coef / case.k
    if not np.isfinite(model.coef_).all():
        return Found("WRONG", words="coefficients are not finite")
    wrong = fitted_values(case, model, X, weighted_rows, members)
    if wrong or undecided:
        return Found("WRONG" if wrong else "undecided", words=wrong)
    error = worst_ratio(model, exact, bound, case, X)
    result = Found("right", error, lapack_ratio(members, exact, bound, case.p))
    if not error <= LIMIT:
        return Found("WRONG", error, result.lapack, f"coefficients are {error:.3g} bounds off")
    wrong = constant_columns(case, model, X, weighted_rows) or seldom_checked(
        case, model, X, y, weight
    )
    return Found("WRONG", error, result.lapack, wrong) if wrong else result


def parameters(case):
    """Parameters that plain and tuned ensembles share."""
    return {
        "n_estimators": case.k,
        "sampling": "bernoulli" if case.coins else "fixed",
        "design": "balanced" if case.balanced else "independent",
        "fit_intercept": case.fit_intercept,
        "random_state": case.seed % 1000,
    }


def fitted(case, X, y, weight):
    """The ensemble on the case's engine."""
    model = olsen.OLSEnsembleRegressor(
        max_features=case.size,
        max_samples=case.rows or 1.0,
        solver=case.solver,
        n_jobs=1,
        **parameters(case),
    )
    pieces = [
        (X[r], y[r], *([] if weight is None else [weight[r]]))
        for r in (slice(0, case.n // 2), slice(case.n // 2, case.n))
    ]
    if case.engine == "blocks":
        return model.fit(lambda: iter(pieces), None)
    if case.engine == "stream":
        for piece in pieces:
            model.partial_fit(*piece)
        return model
    if case.engine == "device":
        return on_device(model, X, y, weight)
    kinds = {"csr": sp.csr_array, "csc": sp.csc_array, "fortran": np.asfortranarray, "frame": frame}
    return model.fit(kinds.get(case.engine, np.asarray)(X), y, weight)


def frame(X):
    import pandas as pd

    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])


def on_device(model, X, y, weight):
    """Arrays of another library: FUZZ_ARRAYS may be "torch", "torch:cuda" or "cupy" in place of
    array-api-strict.
    """
    from sklearn import config_context

    library, _, device = os.environ.get("FUZZ_ARRAYS", "array_api_strict").partition(":")
    xp = importlib.import_module(library)

    def put(a):
        return None if a is None else xp.asarray(a, **({"device": device} if device else {}))

    def get(a):
        return (
            a.cpu().numpy()
            if library == "torch"
            else a.get()
            if library == "cupy"
            else np.asarray(a)
        )

    with config_context(array_api_dispatch=True):
        model.fit(put(X), put(y), put(weight))
    for name in ("coef_", "intercept_"):
        value = getattr(model, name)
        setattr(model, name, get(value) if hasattr(value, "shape") else value)
    return model


def coefficient_bound(case, members, X):
    """(p, q) error that every coefficient may have, and whether the case is beyond double
    precision.
    """
    q = members[0][1].coef.shape[1]
    lengths_of_all_rows = np.sqrt((X.astype(LONG) ** 2).sum(axis=0))
    lengths_of_all_rows[lengths_of_all_rows == 0] = 1
    bound = np.zeros((case.p, q), dtype=LONG)
    undecided = False
    for columns, m in members:
        E, kappa, noise = member_error(case, m, X[:, columns])
        residual_norm = float(np.sqrt(m.left.max()))
        raw = float(np.sqrt((m.B**2).sum(axis=0).max()))
        undecided = (
            undecided
            or kappa * noise > UNDECIDED
            or kappa**2 * noise * residual_norm > UNDECIDED * raw
        )
        live = m.length > 0
        if not live.any():
            continue
        inverse = np.where(
            live, 1 / np.where(live, m.length, 1), 1 / lengths_of_all_rows[columns]
        )  # dead ones: in its rows only
        member_bound = np.outer(inverse, E)
        if (
            m.rank < live.sum()
        ):  # the null space is known to eps in columns of unit length, not in the users' units
            spread = float(m.length[live].max() / m.length[live].min())
            member_bound += inverse.max() * E + noise * kappa * spread * np.abs(m.coef).max(axis=0)
            undecided = undecided or kappa * noise * spread > UNDECIDED
        bound[columns] += member_bound / len(members)
    return bound, undecided


def member_error(case, m, X):
    """E of the module's formula (q,), the condition number, and the relative rounding of the
    columns.
    """
    size = m.size()
    residual_norm = np.sqrt(m.left)
    raw = np.sqrt((m.B**2).sum(axis=0)) + np.abs(m.mean_y) * np.sqrt(len(m.A))
    kappa = m.condition
    noise = rounding_of(case, m, X)
    gram = kappa**2 * size if kappa**2 < GRAM else 0
    E = noise * (kappa * (size + raw) + kappa**2 * residual_norm + gram)
    if m.A.shape[1] >= len(m.A) - 1:  # rows may be trusted that have lost five digits
        E = E + 1e5 * noise * size
    if case.solver == "masked_cg" or case.engine == "device":
        E = E + 1e-8 * kappa * size + noise * kappa**2 * raw
    return E, kappa, noise


def rounding_of(case, m, X):
    """What rounding does to the columns of a member, relative to their lengths."""
    offset = m.offset
    if (
        case.solver == "masked_cg" or case.engine == "device"
    ):  # members are centred by the means of all rows
        live = m.length > 0
        offset = max(
            offset,
            300 * float(np.max(np.abs(X[:, live]).max(axis=0) / m.length[live], initial=0.0)),
        )
    return EPS * max(m.A.shape) * (1 + offset)


def worst_ratio(model, exact, bound, case, X):
    """Largest error of a coefficient over its bound."""
    coef = np.asarray(model.coef_, dtype=float).reshape(-1, case.p).T.astype(LONG)
    extra = EPS32 * np.abs(exact) if case.engine == "float32" else EPS * np.abs(exact)
    allowed = bound + extra + SUBNORMAL
    error = np.abs(coef - exact)
    return float(
        np.max(np.where(error > 0, error / np.where(allowed > 0, allowed, np.finfo(float).tiny), 0))
    )


def lapack_ratio(members, exact, bound, p):
    """Error over bound of LAPACK's QR with column pivoting, on centred columns of unit length.

    NaN where columns are dependent, for there it solves another problem (minimum norm at unit
    length).
    """
    mean = np.zeros_like(exact)
    for columns, m in members:
        live = m.length > 0
        if m.rank < live.sum():
            return np.nan
        if not live.any():
            continue
        A = (m.A[:, live] / m.length[live]).astype(float)
        unit = np.abs(m.B).max() or LONG(1)
        b = la.lstsq(A, (m.B / unit).astype(float), lapack_driver="gelsy", check_finite=False)[0]
        mean[np.asarray(columns)[live]] += b * unit / m.length[live][:, None] / len(members)
    error = np.abs(mean - exact)
    return float(np.max(np.where(error > 0, error / (bound + EPS * np.abs(exact) + SUBNORMAL), 0)))


def fitted_values(case, model, X, weighted_rows, members):
    """Predictions for the training rows, which dependent columns and their units do not make
    ambiguous.
    """
    rows = X[weighted_rows].astype(LONG)
    exact = sum(rows[:, columns] @ m.coef + m.intercept for columns, m in members) / len(members)
    coef = np.asarray(model.coef_, dtype=float).reshape(-1, case.p).T.astype(LONG)
    predictions = rows @ coef + np.asarray(model.intercept_, dtype=float).reshape(-1)
    rounding = EPS32 if case.engine == "float32" else EPS
    terms = np.abs(rows) @ np.abs(coef) + np.abs(np.asarray(model.intercept_, dtype=float))
    allowed = 64 * rounding * case.n * terms + SUBNORMAL * np.abs(rows).sum(axis=1)[:, None]
    for columns, m in members:
        E, kappa, noise = member_error(case, m, X[:, columns])
        if kappa * noise > UNDECIDED:
            return ""
        live = m.length > 0
        reach = np.abs(rows[:, columns][:, live] - rows[:, columns][:, live].mean(axis=0)) @ (
            1 / m.length[live]
        )
        allowed = allowed + LIMIT * np.outer(1 + reach, E) / len(members)
    error = np.abs(predictions - exact)
    return (
        ""
        if np.all(error <= allowed)
        else f"predictions are {float(np.max(error / allowed)):.3g} bounds off"
    )


def constant_columns(case, model, X, weighted_rows):
    """Constant columns have coefficient zero, exactly."""
    dead = (X[weighted_rows] == (X[weighted_rows][:1] if case.fit_intercept else 0)).all(axis=0)
    coef = np.asarray(model.coef_).reshape(-1, case.p)
    return f"constant columns have coefficients {coef[:, dead]}" if np.any(coef[:, dead]) else ""


def seldom_checked(case, model, X, y, weight):
    """Checks that every tenth case or so pays for; the seed decides."""
    turn = case.seed % 8
    if turn == 0 and case.engine == "memory":
        return tuned(case, model, X, y, weight)
    if turn == 1 and case.engine == "memory" and case.n <= 12 and not case.coins:
        return intervals(case, model, X, y, weight)
    if turn == 2 and case.engine in ("memory", "csr", "csc"):
        return dropout(case, X, y, weight)
    if turn == 3:
        return repeated(case, model, X, y, weight)
    return ""


def tuned(case, model, X, y, weight):
    """The tuned ensemble of one size and no scale is the plain one, to the last bit.

    Tuned ensembles have no choice of solver, so that the plain one is fitted again where a case
    names one.
    """
    if case.rows or case.size > int(
        0.85 * (np.count_nonzero(np.ones(case.n) if weight is None else weight) - 1)
    ):
        return ""
    if case.solver != "auto":
        model = olsen.OLSEnsembleRegressor(
            max_features=case.size, n_jobs=1, **parameters(case)
        ).fit(X, y, weight)
    cv = olsen.OLSEnsembleRegressorCV(max_features=[case.size], scale=1.0, **parameters(case))
    cv.fit(X, y, weight)
    if np.any(cv.coef_ != model.coef_):
        return "the tuned ensemble of one size differs from the plain one"
    if nan := [name for name, values in cv.cv_results_.items() if np.isnan(values).any()]:
        return f"cv_results_ holds NaN in {nan}"
    free = olsen.AdaptiveOLSEnsembleRegressor(
        n_estimators=case.k, random_state=case.seed % 1000, fit_intercept=case.fit_intercept
    )
    free.fit(X, y, weight)
    scaled = np.all((np.asarray(free.scale_) >= 0) & (np.asarray(free.scale_) < 1e6))
    right = np.isfinite(free.coef_).all() and scaled and not np.isnan(free.best_score_)
    return "" if right else f"tuned: scale {free.scale_}, score {free.best_score_}"


def intervals(case, model, X, y, weight):
    """The widest jackknife interval is the largest error of a held-out row, by refits in extended
    precision.
    """
    n = case.n
    Y = np.asarray(y, dtype=float).reshape(case.n, -1)
    if weight is not None and case.weights != "ordinary":
        return ""
    worst = np.zeros(Y.shape[1])
    largest = np.zeros(Y.shape[1])
    for l in range(n):
        predicted = np.zeros(Y.shape[1], dtype=LONG)
        for i in range(case.k):
            rows = np.setdiff1d(model.sample_subsets_[i], [l])
            columns = model.feature_subsets_[i]
            m = Member(
                X[np.ix_(rows, columns)],
                Y[rows],
                None if weight is None else weight[rows],
                case.fit_intercept,
            )
            if m.condition * EPS * n * (1 + m.offset) > 1e-10:
                return ""
            member_bound = X[l, columns] @ m.coef + m.intercept
            predicted += member_bound / case.k
            largest = np.maximum(largest, np.abs(member_bound))
        worst = np.maximum(worst, np.abs(Y[l] - predicted))
    ends = np.asarray(
        model.predict_interval(X[:1], coverage=n / (n + 1), method="jackknife")
    ).reshape(-1, 2)
    half = (ends[:, 1] - ends[:, 0]) / 2
    right = np.all(np.abs(half - worst) <= 1e-7 * (largest + np.abs(Y).max(axis=0)))
    return "" if right else f"half-width {half} of the jackknife, refits give {worst}"


def dropout(case, X, y, weight):
    """The closed form against elimination in extended precision."""
    alpha = 0.2 + 0.7 * (case.seed % 97) / 97
    model = olsen.DropoutRegressor(alpha, fit_intercept=case.fit_intercept).fit(X, y, weight)
    weighted_rows = np.arange(case.n) if weight is None else np.flatnonzero(weight > 0)
    Y = np.asarray(y, dtype=float).reshape(case.n, -1)
    m = Member(
        X[weighted_rows],
        Y[weighted_rows],
        None if weight is None else weight[weighted_rows],
        case.fit_intercept,
    )
    live = np.flatnonzero(m.length > 0)
    if not len(live) or m.offset > 1e5:
        return ""
    A = m.A[:, live] / m.length[live]
    N = alpha * (A.T @ A)
    N[np.diag_indices(len(live))] = 1
    z = least_squares(N, A.T @ m.B)[0]
    coef = np.asarray(model.coef_).reshape(-1, case.p).T[live]
    error = np.abs(coef * m.length[live][:, None] - z).max(axis=0)
    allowed = SUBNORMAL * m.length.max() + 1e3 * EPS * case.n * (1 + m.offset) / (1 - alpha) * (
        np.sqrt((m.B**2).sum(axis=0)) + np.abs(m.intercept)
    )
    return (
        "" if np.all(error <= allowed) else f"dropout is {np.max(error / allowed):.3g} bounds off"
    )


def repeated(case, model, X, y, weight):
    """A second fit has the coefficients of the first."""
    second_fit = fitted(case, X, y, weight)
    return (
        ""
        if np.array_equal(second_fit.coef_, model.coef_)
        else "a second fit differs from the first"
    )
