"""Constants of every figure: the numbers of the captions, and the extent of the simulation.

``paper`` has the numbers of trials, members and points of the captions; ``quick`` has smaller
numbers, for a look within a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

SCALES = ("paper", "quick")
PAPER = "LeJeune, Javadi and Baraniuk (2020)"


def numbers_of_members(top: int, count: int) -> tuple[int, ...]:
    """Whole numbers from 1 to `top`, about evenly spaced on a logarithmic axis."""
    return tuple(int(k) for k in np.unique(np.geomspace(1, top, count).round().astype(int)))


def _log_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in np.geomspace(low, high, count))


@dataclass(frozen=True)
class Recipe:
    """One figure: its title and its constants at both scales.

    Parameters
    ----------
    title : str
        A few words.
    setting : str
        Sentences of the caption, with names of constants in braces and formulas between dollars.
    constants : mapping
        Constants that are equal at both scales.
    paper, quick : mapping
        Constants that differ.
    is_of_the_paper : bool
        Whether the paper has the figure, under the same number.

    Examples
    --------
    >>> from olsen.figures import RECIPES
    >>> RECIPES["figure2"].at("paper").trials, RECIPES["figure2"].constants["gammas"]
    (50, (0.5, 1.0, 2.0))
    """

    title: str
    setting: str
    constants: Mapping[str, Any]
    paper: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    is_of_the_paper: bool = False

    def at(self, scale: str) -> SimpleNamespace:
        """All constants at one scale."""
        if scale not in SCALES:
            raise ValueError(f"scale={scale!r} must be one of {SCALES}.")
        return SimpleNamespace(**{**self.constants, **getattr(self, scale)})


RECIPES: Mapping[str, Recipe] = {
    "figure1": Recipe(
        "subsampling",
        "One member: it has {n_features} of $p = {p}$ columns and {n_samples} of $n = {n}$ rows. Hatched:"
        " its part of $X$; filled: its rows of $y$ and its coefficients.",
        {"n": 12, "p": 9, "n_features": 4, "n_samples": 8, "seed": 3, "trials": 0},
        is_of_the_paper=True,
    ),
    "figure2": Recipe(
        "risk against the number of members",
        r"Risk of $k$ members on $n = {n}$ rows and $p = \gamma n$ columns with $\gamma =$ {gammas};"
        r" noise $\sigma = {sigma}$, fraction of columns $\alpha = \alpha_*$. Circles: all rows"
        r" ($\eta = 1$); squares: {row_factor} times as many rows as columns"
        r" ($\eta = {row_factor}\,\alpha\gamma$), where the risk of one member is skewed to the right and"
        r" its standard error uncertain. Dashed: optimally tuned ridge regression.",
        {"n": 200, "sigma": 1.0, "gammas": (0.5, 1.0, 2.0), "row_factor": 1.1},
        paper={"trials": 50, "k": numbers_of_members(1000, 25)},
        quick={"trials": 50, "k": numbers_of_members(300, 12)},
        is_of_the_paper=True,
    ),
    "figure3": Recipe(
        "risk against the noise",
        r"Risk of {ks} independent members on all $n = {n}$ rows ($\eta = 1$) and random columns of"
        r" $p = {p}$ against the noise $\sigma$. Top, logarithmic: $\alpha = \alpha_*$, the best fraction"
        r" of columns for infinitely many members; bottom: the best fraction for $k$ members, but at"
        r" least one column. Theory is the expected risk at this $n$ and $p$. Dashed: the limiting risk of"
        r" optimally tuned ridge regression.",
        {"n": 200, "p": 400, "ks": (20, 100, 500), "low": 0.1, "high": 10.0},
        paper={"trials": 100, "sigmas": _log_grid(0.1, 10.0, 17)},
        quick={"trials": 12, "sigmas": _log_grid(0.1, 10.0, 7)},
        is_of_the_paper=True,
    ),
    "figure4": Recipe(
        "scaled ensembles",
        r"Limiting risk of infinitely many members, $\gamma = 0.5$, against the noise $\sigma$, without a"
        r" scale ($\mu = 1$, circles) and with the best scale ($\mu = \mu_*$, squares), for too few columns"
        r" ($\alpha = \alpha_*/2$) and for a fixed fraction ($\alpha = {fixed_alpha}$). Dashed: optimally"
        r" tuned ridge regression. The points, which the paper does not have, are at $n = {n}$, $p = {p}$,"
        r" from pairs among {members} members, and are compared with the risk at that size.",
        {"n": 200, "p": 100, "fixed_alpha": 0.5, "low": 0.1, "high": 10.0, "members": 60},
        paper={"trials": 100, "sigmas": _log_grid(0.1, 10.0, 13)},
        quick={"trials": 20, "sigmas": _log_grid(0.1, 10.0, 7)},
        is_of_the_paper=True,
    ),
    "figure5": Recipe(
        "bias and variance fall with k",
        r"Bias and variance of $k$ members, $n = {n}$, $p = {p}$, $\sigma = {sigma}$,"
        r" $\alpha = \alpha_*$. Balanced members of one group have no column in common."
        r" Dashed: infinitely many members.",
        {"n": 200, "p": 400, "sigma": 1.0},
        paper={"trials": 50, "k": numbers_of_members(1000, 25)},
        quick={"trials": 10, "k": numbers_of_members(300, 12)},
    ),
    "figure6": Recipe(
        "through the interpolation peak",
        r"Risk of {ks} members against their columns, $n = {n}$, $p = {p}$, $\sigma = {sigma}$; from"
        r" {n} columns on, members are solutions of minimum norm. Points are computed from {members}"
        r" members. Dashed: optimally tuned ridge regression.",
        {"n": 100, "p": 200, "sigma": 0.5, "ks": (1, 10, float("inf")), "members": 100},
        paper={
            "trials": 100,
            "sizes": (5, 10, 20, 30, 40, 50, 60, 70, 80, 88, 93, 107, 112, 120, 135, 150, 175, 200),
        },
        quick={"trials": 20, "sizes": (10, 30, 50, 70, 88, 112, 130, 160, 200)},
    ),
    "figure7": Recipe(
        "unequal covariance",
        r"Risk of infinitely many members (from pairs among {members} members) and of ridge regression with"
        r" the same degrees of freedom, $n = {n}$, $p = {p}$, $\sigma = {sigma}$. Left: variances from 1"
        r" down to 0.01; right: neighbours with correlation 0.8. Columns are drawn with equal"
        r" probabilities, or with those matched to the penalty of ridge regression.",
        {
            "n": 100,
            "p": 100,
            "sigma": 0.3,
            "covariances": (("diagonal", 0.01), ("ar1", 0.8)),
            "members": 100,
        },
        paper={
            "trials": 100,
            "fractions": tuple(round(0.1 + 0.05 * step, 2) for step in range(15)),
            "line_points": 29,
            "n_subsets": 200,
        },
        quick={
            "trials": 20,
            "fractions": (0.15, 0.3, 0.45, 0.6, 0.75),
            "line_points": 11,
            "n_subsets": 200,
        },
    ),
    "figure8": Recipe(
        "dropout, ensemble and ridge",
        r"Risk of dropout, ridge regression with the implied penalty and infinitely many members (from"
        r" pairs among {members} members), $n = {n}$, $\sigma = {sigma}$, $p = \gamma n$ with $\gamma =$ {gammas}.",
        {"n": 200, "sigma": 1.0, "gammas": (0.5, 2.0), "members": 60},
        paper={"trials": 100, "points": 9},
        quick={"trials": 15, "points": 6},
    ),
    "figure9": Recipe(
        "sparse coefficients",
        r"Risk of estimators that tune themselves against the number of non-zero coefficients, $n = {n}$,"
        r" $p = {p}$, $\sigma = {sigma}$; right: on a logarithmic axis. Dashed: optimally tuned ridge"
        r" regression; dotted: infinitely many members with the best probabilities for known coefficients.",
        {"n": 100, "p": 150, "sigma": 0.5, "draws": 200},
        paper={"trials": 30, "nonzeros": (1, 2, 4, 8, 16, 32, 64, 100, 150)},
        quick={"trials": 4, "nonzeros": (1, 4, 16, 64, 150)},
    ),
    "figure10": Recipe(
        "distance from ridge on real columns",
        r"Distance of the fitted values of $k$ members from ridge regression with {size} degrees of freedom,"
        r" relative to the norm of the latter, on {n} soil spectra and every {every}th wavelength, with"
        r" members drawn {repeats} times.",
        {"n": 300, "every": 7, "size": 12, "trials": 0},
        paper={"repeats": 10, "k": numbers_of_members(10_000, 13)},
        quick={"repeats": 3, "k": numbers_of_members(1000, 7)},
    ),
    "figure11": Recipe(
        "how universal the theory is",
        r"Simulated risk over theoretical risk, which knows only the covariance, $n = {n}$, $p = {p}$,"
        r" $\sigma = {sigma}$, members of {n_features} columns. Top: six distributions of rows and seven"
        r" covariances, for one member and for infinitely many (from pairs among {members}). Bottom left:"
        r" coefficients of several directions. Bottom right: the error that leave-one-out and GCV"
        r" estimate, over the true error, for {members} members and uncorrelated columns. Standard errors"
        r" include that of theory, which averages over {n_subsets} subsets.",
        {"n": 100, "p": 60, "n_features": 24, "sigma": 0.5, "members": 40},
        paper={"trials": 100, "n_subsets": 400},
        quick={"trials": 30, "n_subsets": 100},
    ),
}
