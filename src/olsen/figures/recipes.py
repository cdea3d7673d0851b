"""The constants of every figure: what the captions say, and the extent at which it is run.

``paper`` has the captions' numbers of trials, members and points; ``quick`` fewer of them, for a look within a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["RECIPES", "SCALES", "Recipe", "members"]

SCALES = ("paper", "quick")


def members(top: int, count: int) -> tuple[int, ...]:
    """Whole numbers from 1 to `top`, about evenly spaced on a logarithmic axis."""
    return tuple(int(k) for k in np.unique(np.geomspace(1, top, count).round().astype(int)))


def _log_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in np.geomspace(low, high, count))


@dataclass(frozen=True)
class Recipe:
    """One figure: its title, what it shows, and its constants at both scales.

    Parameters
    ----------
    title : str
        A few words.
    caption : str
        What to see.
    constants : mapping
        The same at both scales.
    paper, quick : mapping
        What differs.

    Examples
    --------
    >>> from olsen.figures import RECIPES
    >>> RECIPES["figure2"].at("paper").trials, RECIPES["figure2"].constants["gammas"]
    (50, (0.5, 1.0, 2.0))
    """

    title: str
    caption: str
    constants: Mapping[str, Any]
    paper: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)

    def at(self, scale: str) -> SimpleNamespace:
        """All constants at one scale."""
        if scale not in SCALES:
            raise ValueError(f"scale={scale!r} must be one of {SCALES}.")
        return SimpleNamespace(**{**self.constants, **getattr(self, scale)})


RECIPES: Mapping[str, Recipe] = {
    "figure1": Recipe(
        "subsampling",
        "One member of an ensemble. It predicts with its own columns only (green); their coefficients come from least "
        "squares on the drawn rows of y (vermillion) and the drawn rows and columns of X (blue, hatched).",
        {"n": 12, "p": 9, "n_features": 4, "n_samples": 8, "seed": 3, "trials": 0},
    ),
    "figure2": Recipe(
        "risk against the number of members",
        "Risk at alpha_* against the number of members k, with all rows (circles) and with 1.1 times as many rows as "
        "columns (squares); n = 200, sigma = 1. Lines: expected risk at this n. Triangles: determinantal members, "
        "whose limit is ridge regression on any data. All reach the optimal ridge risk (dashed), the second more "
        "slowly.",
        {"n": 200, "sigma": 1.0, "gammas": (0.5, 1.0, 2.0), "row_factor": 1.1},
        paper={"trials": 50, "k": members(1000, 25)},
        quick={"trials": 10, "k": members(300, 12)},
    ),
    "figure3": Recipe(
        "risk against the noise",
        "Risk against sigma for k = 20, 100, 500 members with the best alpha of the infinite ensemble (top) and of the "
        "k at hand (bottom); n = 200, p = 400. Lines: expected risk at this n. Dashed: optimal ridge.",
        {"n": 200, "p": 400, "ks": (20, 100, 500), "low": 0.1, "high": 10.0},
        paper={"trials": 100, "sigmas": _log_grid(0.1, 10.0, 17)},
        quick={"trials": 12, "sigmas": _log_grid(0.1, 10.0, 7)},
    ),
    "figure4": Recipe(
        "scaled ensembles",
        "Large-ensemble risk with mu = 1 (solid, circles) and the best mu (dotted, squares) for half of the best alpha "
        "(blue) and alpha = 1/2 (vermillion); gamma = 0.5. Lines: the limit. Points: n = 200, mean over pairs of "
        "members.",
        {"n": 200, "p": 100, "fixed_alpha": 0.5, "low": 0.1, "high": 10.0, "members": 60},
        paper={"trials": 100, "sigmas": _log_grid(0.1, 10.0, 13)},
        quick={"trials": 20, "sigmas": _log_grid(0.1, 10.0, 7)},
    ),
    "figure5": Recipe(
        "bias and variance fall with k",
        "Bias and variance at alpha_* against the number of members; n = 200, p = 400, sigma = 1. Members that share a "
        "permutation (balanced) reach the limit sooner than independent ones. Lines: exact expectation.",
        {"n": 200, "p": 400, "sigma": 1.0},
        paper={"trials": 50, "k": members(1000, 25)},
        quick={"trials": 10, "k": members(300, 12)},
    ),
    "figure6": Recipe(
        "through the interpolation peak",
        "Risk against the columns of a member, up to all of them; n = 100 rows, p = 200, sigma = 0.5. Where columns "
        "equal rows the risk of one member is infinite. The infinite ensemble does not notice, and stays flat after.",
        {"n": 100, "p": 200, "sigma": 0.5, "ks": (1, 10, float("inf")), "members": 100},
        paper={"trials": 100, "sizes": (5, 10, 20, 30, 40, 50, 60, 70, 80, 88, 93, 107, 112, 120, 135, 150, 175, 200)},
        quick={"trials": 20, "sizes": (10, 30, 50, 70, 88, 112, 130, 160, 200)},
    ),
    "figure7": Recipe(
        "unequal covariance",
        "Risk against the mean number of columns of a member, as a share of all; n = p = 100, sigma = 0.3. Left: "
        "variances from 1 down to 0.01, where drawing columns with probabilities matched to ridge repairs what uniform "
        "drawing loses. Right: neighbours correlated 0.8, all columns alike, nothing to repair. Lines: large n.",
        {
            "n": 100,
            "p": 100,
            "sigma": 0.3,
            "covariances": (("diagonal", 0.01), ("ar1", 0.8)),
            "members": 100,
            "n_subsets": 200,
        },
        paper={"trials": 150, "shares": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "line_points": 36},
        quick={"trials": 20, "shares": (0.15, 0.3, 0.45, 0.6, 0.75), "line_points": 11},
    ),
    "figure8": Recipe(
        "dropout, ensemble and ridge",
        "Risk against alpha of dropout, dropout multiplied by alpha, the infinite ensemble, and ridge with the "
        "ensemble's implied penalty; n = 200, sigma = 1. Ensemble and ridge coincide; dropout at the same alpha "
        "regularises less. Lines: theory for large n.",
        {"n": 200, "sigma": 1.0, "gammas": (0.5, 2.0), "members": 60},
        paper={"trials": 100, "points": 9},
        quick={"trials": 15, "points": 6},
    ),
    "figure9": Recipe(
        "sparse coefficients",
        "Risk of tuned estimators against the number of coefficients that are not zero; n = 100, p = 150, sigma = 0.5. "
        "Members drawn uniformly do as well as ridge. The default draws the columns that matter more often, as far as "
        "left-out rows support it. Dashed: optimal ridge. Dotted: the best probabilities if the coefficients were "
        "known, theory for large n.",
        {"n": 100, "p": 150, "sigma": 0.5, "draws": 200},
        paper={"trials": 30, "nonzeros": (1, 2, 4, 8, 16, 32, 64, 100, 150)},
        quick={"trials": 4, "nonzeros": (1, 4, 16, 64, 150)},
    ),
    "figure10": Recipe(
        "distance from ridge on real columns",
        "Distance of the mean of k members from ridge regression with as many degrees of freedom, in units of its "
        "fitted values; 300 soil spectra, every seventh wavelength, 12 columns a member. Determinantal members reach "
        "it at the rate of a mean. Others with the same probabilities, or with equal ones, go elsewhere.",
        {"n": 300, "every": 7, "size": 12, "trials": 0},
        paper={"repeats": 10, "k": members(10_000, 13)},
        quick={"repeats": 3, "k": members(1000, 7)},
    ),
}
