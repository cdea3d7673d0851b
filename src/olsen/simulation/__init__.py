"""Simulation: problems with a known answer, methods to solve the problems, Monte Carlo with
standard errors.

Nothing in this package uses the theory, so agreement with the theory is evidence.
"""

from .methods import Dropout, Ensemble, Estimator, Ridge
from .montecarlo import Estimate, run
from .problems import LinearProblem

__all__ = [
    "Dropout",
    "Ensemble",
    "Estimate",
    "Estimator",
    "LinearProblem",
    "Ridge",
    "run",
]
