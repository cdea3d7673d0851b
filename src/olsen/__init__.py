"""Ensembles of ordinary least squares on random submatrices of the data.

>>> from olsen import OLSEnsembleRegressor, theory
>>> OLSEnsembleRegressor(max_features=0.3)
OLSEnsembleRegressor(max_features=0.3)
>>> round(float(theory.optimal_alpha(gamma=2.0, sigma=1.0)), 4)
0.2192
"""

import importlib

from . import subsets
from ._dropout import DropoutRegressor
from ._ensemble import OLSEnsembleRegressor
from ._functional import member_coefficients
from ._tuning import OLSEnsembleRegressorCV

__version__ = "0.1.0"

_ROOMS = (
    "datasets",
    "equivalence",
    "figures",
    "simulation",
    "theory",
)  # loaded when first used, so that `import olsen` stays light

__all__ = [
    "DropoutRegressor",
    "OLSEnsembleRegressor",
    "OLSEnsembleRegressorCV",
    "__version__",
    "datasets",
    "equivalence",
    "figures",
    "member_coefficients",
    "simulation",
    "subsets",
    "theory",
]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"olsen.{name}")
    raise AttributeError(f"module 'olsen' has no attribute {name!r}")


def __dir__():
    return __all__
