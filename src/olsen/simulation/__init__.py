"""Simulation: problems with a known answer, methods to try on them, Monte Carlo with standard errors.

Nothing here knows the theory, so that agreement with it is evidence.
"""

from .methods import Dropout, Ensemble, Estimator, Ridge
from .montecarlo import Estimate, run
from .problems import LinearProblem, Sample

__all__ = ["Dropout", "Ensemble", "Estimate", "Estimator", "LinearProblem", "Ridge", "Sample", "run"]
