"""Error estimates of predictions and coefficients.

==================  ================================================================================
``jackknife``       jackknife+ intervals and standard errors, from rows in memory
``cv_plus``         CV+ intervals, from fits without each fold
``moment_errors``   standard errors from moments, where rows are not in memory
``refits``          standard errors of tuned models, from fits on a fraction of the rows
``draws``           variance of the mean of the members over random draws
==================  ================================================================================
"""

from .cv_plus import CVPlus
from .draws import solve_draws
from .jackknife import Jackknife
from .moment_errors import MomentErrors, mean_inverse
from .refits import Refits

__all__ = ["CVPlus", "Jackknife", "MomentErrors", "Refits", "mean_inverse", "solve_draws"]
