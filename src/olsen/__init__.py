"""Ensembles of ordinary least squares on random submatrices of the data.

>>> from olsen import OLSEnsembleRegressor, theory
>>> OLSEnsembleRegressor(max_features=0.3)
OLSEnsembleRegressor(max_features=0.3)
>>> round(float(theory.optimal_alpha(gamma=2.0, sigma=1.0)), 4)
0.2192
"""

__version__ = "0.1.0"

__all__ = [
    "AdaptiveOLSEnsembleRegressor",
    "DropoutRegressor",
    "OLSEnsembleRegressor",
    "OLSEnsembleRegressorCV",
    "TableEncoder",
    "__version__",
    "datasets",
    "displays",
    "equivalence",
    "explorer",
    "figures",
    "leverage",
    "load",
    "member_coefficients",
    "onnx",
    "predict_interval",
    "predict_quantiles",
    "reference",
    "report",
    "save",
    "simulation",
    "subsets",
    "summary",
    "theory",
]

# Where the names live. They are loaded when first used: `olsen --version` need not wait for
# scikit-learn.
_MODULES = (
    "datasets",
    "displays",
    "equivalence",
    "explorer",
    "figures",
    "onnx",
    "reference",
    "simulation",
    "subsets",
    "theory",
)
_HOMES = {
    "AdaptiveOLSEnsembleRegressor": "olsen._estimators.adaptive",
    "DropoutRegressor": "olsen._dropout.estimator",
    "OLSEnsembleRegressor": "olsen._estimators.ensemble",
    "OLSEnsembleRegressorCV": "olsen._estimators.ensemble_cv",
    "leverage": "olsen._estimators.pipelines",
    "load": "olsen._persistence",
    "member_coefficients": "olsen._estimators.ensemble",
    "predict_interval": "olsen._estimators.pipelines",
    "predict_quantiles": "olsen._estimators.pipelines",
    "report": "olsen._estimators.pipelines",
    "save": "olsen._persistence",
    "summary": "olsen._estimators.pipelines",
    "TableEncoder": "olsen._tables.encoder",
}

TYPE_CHECKING = False  # the module typing would take as long to import as all the rest here
if TYPE_CHECKING:
    from . import (
        datasets,
        displays,
        equivalence,
        explorer,
        figures,
        onnx,
        reference,
        simulation,
        subsets,
        theory,
    )
    from ._dropout.estimator import DropoutRegressor
    from ._estimators.adaptive import AdaptiveOLSEnsembleRegressor
    from ._estimators.ensemble import OLSEnsembleRegressor, member_coefficients
    from ._estimators.ensemble_cv import OLSEnsembleRegressorCV
    from ._estimators.pipelines import (
        leverage,
        predict_interval,
        predict_quantiles,
        report,
        summary,
    )
    from ._persistence import load, save
    from ._tables.encoder import TableEncoder
else:  # hidden from type checkers, which would believe any name otherwise

    def __getattr__(name):
        import importlib

        if name in _MODULES:
            return importlib.import_module(f"olsen.{name}")
        if name in _HOMES:
            found = getattr(importlib.import_module(_HOMES[name]), name)
            globals()[name] = found  # where the next look finds it without coming here
            return found
        raise AttributeError(f"module 'olsen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
