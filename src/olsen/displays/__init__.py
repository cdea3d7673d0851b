"""Plots of fitted ensembles and of their theory, in the manner of scikit-learn's displays.

Every class holds numbers, usually computed by one of its ``from_...`` methods. Only ``plot``, which
draws the numbers, needs matplotlib (``pip install 'olsen[plot]'``).

>>> from olsen import displays
>>> display = displays.RiskCurveDisplay.from_theory(
...     gamma=2.0, sigma=1.0, k=(10, float("inf"))
... )
>>> display.ax_.get_ylabel()
'risk'
"""

from .coefficients import CoefficientDisplay
from .convergence import ConvergenceDisplay
from .intervals import IntervalDisplay
from .risk import RiskCurveDisplay
from .tuning import TuningCurveDisplay, TuningPlaneDisplay

__all__ = [
    "CoefficientDisplay",
    "ConvergenceDisplay",
    "IntervalDisplay",
    "RiskCurveDisplay",
    "TuningCurveDisplay",
    "TuningPlaneDisplay",
]
