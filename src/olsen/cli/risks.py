"""The numbers of ``olsen risk``, checked on the way in and on the way out, and the table that shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import theory
from .terminal import UsageError

__all__ = ["as_text", "calculate"]

MOST_ROWS = 2**53  # up to here floating-point numbers count in ones


def calculate(
    gamma: float, sigma: float, alpha: float | None, eta: float, k: float, mu: float, n: int | None
) -> dict[str, Any]:
    """Risk of an ensemble with what belongs to it; alpha is the best one if it is None."""
    letters = {"gamma": gamma, "sigma": sigma, "eta": eta, "k": k, "mu": mu}
    given = letters if alpha is None else letters | {"alpha": alpha}
    _check_letters(given, n)
    with _errors_name_letters(given):
        chosen = float(theory.optimal_alpha(gamma, sigma, k=k, eta=eta)) if alpha is None else alpha
        values: dict[str, Any] = {**letters, "alpha": chosen}
        values["risk"] = float(theory.limiting_risk(chosen, gamma, sigma, k=k, eta=eta, mu=mu))
        values["bias"] = float(theory.limiting_bias(chosen, gamma, k=k, eta=eta))
        values["variance"] = float(theory.limiting_variance(chosen, gamma, sigma, k=k, eta=eta))
        values["risk_infinite"] = float(theory.limiting_risk(chosen, gamma, sigma, eta=eta))
        values["best_mu"] = float(theory.optimal_mu(chosen, gamma, sigma, k=k, eta=eta)) if chosen > 0 else None
        values["ridge_risk"] = float(theory.optimal_ridge_risk(gamma, sigma))
        values["ridge_penalty_over_n"] = float(theory.optimal_ridge_penalty(gamma, sigma))
        values["best_alpha_infinite"] = float(theory.optimal_alpha(gamma, sigma))
        if n is not None:
            values |= _at_size(n, gamma, sigma, chosen, eta, k, mu)
        if any(isinstance(value, float) and math.isnan(value) for value in values.values()):
            raise FloatingPointError
    return values


def _check_letters(letters: Mapping[str, float], n: int | None) -> None:
    for letter, value in letters.items():
        if not (math.isfinite(value) or (letter == "k" and value == math.inf)):
            raise UsageError(f"--{letter} {value:g}: a finite number is needed{' (or inf)' * (letter == 'k')}.")
    if n is not None and not 1 <= n <= MOST_ROWS:
        raise UsageError(f"--n {n}: a number of rows is needed, from 1 to 2^53.")


@contextmanager
def _errors_name_letters(letters: Mapping[str, float]) -> Iterator[None]:
    """Turn overflow into an error that names the letter furthest from one; what theory refuses is bad usage too."""
    try:
        with np.errstate(over="raise"):
            yield
    except (FloatingPointError, OverflowError):
        sizes = {letter: abs(math.log(abs(value))) for letter, value in letters.items() if 0 < abs(value) < math.inf}
        letter = max(sizes, key=lambda name: sizes[name])
        extreme = "large" if abs(letters[letter]) > 1 else "small"
        raise UsageError(
            f"--{letter} {letters[letter]:g} is too {extreme}: the risk leaves the range of floating-point numbers."
        ) from None
    except ValueError as error:  # parameters out of range
        raise UsageError(str(error)) from None


def _at_size(
    n: int, gamma: float, sigma: float, alpha: float, eta: float, k: float, mu: float
) -> dict[str, int | float]:
    """Expected risk at n rows; columns are rounded to whole numbers."""
    p = round(gamma * n)
    m, rows = max(1, round(alpha * p)), round(eta * n)
    if not 1 <= p <= MOST_ROWS:
        raise UsageError(f"--gamma {gamma:g} and --n {n} make {p} columns; from 1 to 2^53 are possible.")
    if rows < 1:
        raise UsageError(f"--eta {eta:g} and --n {n} leave no row to a member; give more of either.")
    found = {"n": n, "p": p, "columns_per_member": m, "rows_per_member": rows}
    if m <= rows + 1:
        value = theory.expected_risk(n, p, m, sigma, k=k, n_samples=rows, mu=mu)
    else:
        value = theory.minimum_norm_risk(n, p, m, sigma, k=k, n_samples=rows, mu=mu)
    return {**found, "risk_at_n": float(value)}


def as_text(v: dict[str, Any], best: bool) -> str:
    """The values as a table; `best` says that alpha was chosen here."""
    rows = [
        ("alpha" + (", the best" if best else ""), v["alpha"]),
        (f"risk, k = {v['k']:g}" + (f", mu = {v['mu']:g}" if v["mu"] != 1 else ""), v["risk"]),
        ("  of it bias (mu = 1)", v["bias"]),
        ("  of it variance (mu = 1)", v["variance"]),
        ("risk, k = inf, mu = 1", v["risk_infinite"]),
        ("best mu", v["best_mu"]),
        ("optimal ridge, risk", v["ridge_risk"]),
        ("optimal ridge, penalty / n", v["ridge_penalty_over_n"]),
        ("best alpha for k = inf", v["best_alpha_infinite"]),
    ]
    if "n" in v:
        size = f"{v['n']} x {v['p']}, {v['columns_per_member']} columns, {v['rows_per_member']} rows"
        rows.append((f"risk at {size}", v["risk_at_n"]))
    width = max(len(name) for name, _ in rows) + 2
    head = f"gamma = {v['gamma']:g}, sigma = {v['sigma']:g}, eta = {v['eta']:g}"
    return "\n".join([head, *(f"  {name:<{width}}{'-' if x is None else format(x, '.6g')}" for name, x in rows)])
