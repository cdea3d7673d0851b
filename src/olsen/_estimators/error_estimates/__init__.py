"""Error estimates of predictions and coefficients.

==================  ================================================================================
``jackknife``       jackknife+ intervals and standard errors, from rows in memory
``cv_plus``         CV+ intervals, from fits without each fold
``moment_errors``   standard errors from moments, where rows are not in memory
``refits``          standard errors of tuned models, from fits on a fraction of the rows
``draws``           variance of the mean of the members over random draws
``widths``          size of residuals as a function of the prediction
==================  ================================================================================
"""

from .cv_plus import CVPlus
from .draws import solve_draws
from .jackknife import Jackknife, JackknifeIntervals
from .moment_errors import MomentErrors, mean_inverse
from .refits import Refits
from .widths import AdaptiveWidth, NewRows, NormalIntervals, at_predictions

__all__ = [
    "AdaptiveWidth",
    "CVPlus",
    "Jackknife",
    "JackknifeIntervals",
    "MomentErrors",
    "NewRows",
    "NormalIntervals",
    "Refits",
    "at_predictions",
    "mean_inverse",
    "solve_draws",
]
