"""The numbers of ``olsen risk``, and the table that shows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import theory
from .terminal import UsageError


def calculate(letters: dict[str, float], alpha: float | None, n: int | None) -> dict[str, Any]:
    """Risk of an ensemble with what belongs to it; alpha is the best one if it is None."""
    gamma, sigma, eta, k, mu = letters.values()
    try:
        alpha = float(theory.optimal_alpha(gamma, sigma, k=k, eta=eta)) if alpha is None else alpha
        found = {
            "risk": theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta, mu=mu),
            "bias": theory.limiting_bias(alpha, gamma, k=k, eta=eta),
            "variance": theory.limiting_variance(alpha, gamma, sigma, k=k, eta=eta),
            "risk_infinite": theory.limiting_risk(alpha, gamma, sigma, eta=eta),
            "best_mu": theory.optimal_mu(alpha, gamma, sigma, k=k, eta=eta) if alpha > 0 else None,
            "ridge_risk": theory.optimal_ridge_risk(gamma, sigma),
            "ridge_penalty_over_n": theory.optimal_ridge_penalty(gamma, sigma),
            "best_alpha_infinite": theory.optimal_alpha(gamma, sigma),
            **({} if n is None else _at_size(n, alpha, **letters)),
        }
    except ValueError as error:  # numbers out of range
        raise UsageError(str(error)) from None
    values = {
        name: float(value) if isinstance(value, np.ndarray | np.floating) else value
        for name, value in found.items()
    }
    return {**letters, "alpha": alpha, **values}


def _at_size(
    n: int, alpha: float, gamma: float, sigma: float, eta: float, k: float, mu: float
) -> dict[str, Any]:
    """Expected risk at n rows; columns are rounded to whole numbers."""
    p, rows = round(gamma * n), round(eta * n)
    m = max(1, round(alpha * p))
    if not 1 <= p <= 2**53:  # up to here floating-point numbers count in ones
        raise UsageError(
            f"--gamma {gamma:g} and --n {n} make {p} columns; from 1 to 2^53 are possible."
        )
    if rows < 1:
        raise UsageError(
            f"--eta {eta:g} and --n {n} leave no row to a member; give more of either."
        )
    expected = theory.expected_risk if m <= rows + 1 else theory.minimum_norm_risk
    at_n = expected(n, p, m, sigma, k=k, n_samples=rows, mu=mu)
    return {"n": n, "p": p, "columns_per_member": m, "rows_per_member": rows, "risk_at_n": at_n}


def as_text(v: dict[str, Any], best: bool) -> str:
    """The values as a table; `best` says that alpha was chosen here."""
    rows = {
        "alpha" + (", the best" if best else ""): v["alpha"],
        f"risk, k = {v['k']:g}" + (f", mu = {v['mu']:g}" if v["mu"] != 1 else ""): v["risk"],
        "  of it bias (mu = 1)": v["bias"],
        "  of it variance (mu = 1)": v["variance"],
        "risk, k = inf, mu = 1": v["risk_infinite"],
        "best mu": v["best_mu"],
        "optimal ridge, risk": v["ridge_risk"],
        "optimal ridge, penalty / n": v["ridge_penalty_over_n"],
        "best alpha for k = inf": v["best_alpha_infinite"],
    }
    if "n" in v:
        size = (
            f"{v['n']} x {v['p']}, {v['columns_per_member']} columns, {v['rows_per_member']} rows"
        )
        rows[f"risk at {size}"] = v["risk_at_n"]
    width = max(map(len, rows)) + 2
    head = f"gamma = {v['gamma']:g}, sigma = {v['sigma']:g}, eta = {v['eta']:g}"
    return "\n".join(
        [
            head,
            *(
                f"  {name:<{width}}{'-' if x is None else format(x, '.6g')}"
                for name, x in rows.items()
            ),
        ]
    )
