"""The numbers of ``olsen risk``, and the table that shows them."""

from __future__ import annotations

from typing import Any

from .. import theory
from .terminal import UsageError

LABELS = {
    "bias": "  of it bias (mu = 1)",
    "variance": "  of it variance (mu = 1)",
    "risk_infinite": "risk, k = inf, mu = 1",
    "best_mu": "best mu",
    "ridge_risk": "optimal ridge, risk",
    "ridge_penalty_over_n": "optimal ridge, penalty / n",
    "best_alpha_infinite": "best alpha for k = inf",
}


def calculate(
    *,
    gamma: float | None,
    sigma: float,
    alpha: float | None,
    eta: float,
    k: float,
    mu: float,
    n: int | None,
    p: int | None = None,
) -> dict[str, Any]:
    """Compute the risk of an ensemble with its bias, its variance and the best ridge.

    Without `alpha` the best one is used; with `n` the expected risk at that size is included. The
    ratio `gamma` is p / n if `p` is given instead.
    """
    if p is not None:
        if gamma is not None or n is None:
            raise UsageError("--p is the number of columns: give it with --n, instead of --gamma.")
        gamma = p / n
    if gamma is None:
        raise UsageError("give --gamma, the columns divided by the rows, or --n and --p.")
    letters = {"gamma": gamma, "sigma": sigma, "eta": eta, "k": k, "mu": mu}
    try:
        if alpha is None:
            alpha = float(theory.optimal_alpha(gamma, sigma, k=k, eta=eta))
        values: dict[str, Any] = {
            "risk": theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta, mu=mu),
            "bias": theory.limiting_bias(alpha, gamma, k=k, eta=eta),
            "variance": theory.limiting_variance(alpha, gamma, sigma, k=k, eta=eta),
            "risk_infinite": theory.limiting_risk(alpha, gamma, sigma, eta=eta),
            "ridge_risk": theory.optimal_ridge_risk(gamma, sigma),
            "ridge_penalty_over_n": theory.optimal_ridge_penalty(gamma, sigma),
            "best_alpha_infinite": theory.optimal_alpha(gamma, sigma),
        }
        values["best_mu"] = None
        if alpha > 0:
            values["best_mu"] = theory.optimal_mu(alpha, gamma, sigma, k=k, eta=eta)
        at_size = {} if n is None else _at_size(n, alpha, **letters)
    except ValueError as error:  # numbers out of range
        raise UsageError(str(error)) from None
    numbers = {name: None if value is None else float(value) for name, value in values.items()}
    return {**letters, "alpha": alpha, **numbers, **at_size}


def _at_size(
    n: int, alpha: float, *, gamma: float, sigma: float, eta: float, k: float, mu: float
) -> dict[str, Any]:
    """Expected risk at n rows; columns are rounded to whole numbers."""
    n_columns = round(gamma * n)
    n_rows = round(eta * n)
    size = max(1, round(alpha * n_columns))
    if not 1 <= n_columns <= 2**53:  # up to here floating-point numbers count in ones
        raise UsageError(
            f"--gamma {gamma:g} and --n {n} make {n_columns} columns; from 1 to 2^53 are possible."
        )
    if n_rows < 1:
        raise UsageError(
            f"--eta {eta:g} and --n {n} leave no row to a member; give more of either."
        )
    expected = theory.expected_risk if size <= n_rows + 1 else theory.minimum_norm_risk
    return {
        "n": n,
        "p": n_columns,
        "columns_per_member": size,
        "rows_per_member": n_rows,
        "risk_at_n": float(expected(n, n_columns, size, sigma, k=k, n_samples=n_rows, mu=mu)),
    }


def as_text(values: dict[str, Any], is_best: bool) -> str:
    """Format the values as a table; `is_best` says that alpha was chosen here."""
    factor = f", mu = {values['mu']:g}" if values["mu"] != 1 else ""
    rows = {
        "alpha, the best" if is_best else "alpha": values["alpha"],
        f"risk, k = {values['k']:g}{factor}": values["risk"],
    }
    for name, label in LABELS.items():
        rows[label] = values[name]
    if "n" in values:
        members = f"{values['columns_per_member']} columns, {values['rows_per_member']} rows"
        rows[f"risk at {values['n']} x {values['p']}, {members}"] = values["risk_at_n"]
    width = max(map(len, rows)) + 2
    lines = [f"gamma = {values['gamma']:g}, sigma = {values['sigma']:g}, eta = {values['eta']:g}"]
    for label, value in rows.items():
        lines.append(f"  {label:<{width}}{'-' if value is None else format(value, '.6g')}")
    return "\n".join(lines)
