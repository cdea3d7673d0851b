"""Simulation: problems with a known answer, methods to try on them, Monte Carlo with standard errors.

Nothing here knows the theory, so that agreement with it is evidence.
"""

from .methods import Dropout, Ensemble, Estimator, Ridge
from .montecarlo import Estimate, run, tidy
from .problems import LinearProblem, Sample
from .storage import read_table, write_manifest, write_table

__all__ = [
    "Dropout",
    "Ensemble",
    "Estimate",
    "Estimator",
    "LinearProblem",
    "Ridge",
    "Sample",
    "read_table",
    "run",
    "tidy",
    "write_manifest",
    "write_table",
]
