"""Ensembles of ordinary least squares on random submatrices of the data.

>>> from olsen import OLSEnsembleRegressor
>>> OLSEnsembleRegressor(max_features=0.3)
OLSEnsembleRegressor(max_features=0.3)
"""

from . import subsets
from ._ensemble import OLSEnsembleRegressor
from ._functional import member_coefficients

__version__ = "0.1.0"

__all__ = ["OLSEnsembleRegressor", "__version__", "member_coefficients", "subsets"]
