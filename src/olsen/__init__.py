"""Ensembles of ordinary least squares on random submatrices of the data.

>>> from olsen import OLSEnsembleRegressor, theory
>>> OLSEnsembleRegressor(max_features=0.3)
OLSEnsembleRegressor(max_features=0.3)
>>> round(float(theory.optimal_alpha(gamma=2.0, sigma=1.0)), 4)
0.2192
"""

import importlib
from typing import Any

from . import subsets
from ._dropout.estimator import DropoutRegressor
from ._estimators.ensemble import OLSEnsembleRegressor
from ._estimators.given_members import member_coefficients
from ._estimators.tuned import OLSEnsembleRegressorCV

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


for _public in (DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV, member_coefficients):
    _public.__module__ = "olsen"  # where users find them: pickles and model files name no room of the house


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"olsen.{name}")
    raise AttributeError(f"module 'olsen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
