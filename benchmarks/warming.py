"""What is to be loaded before any clock starts."""

from __future__ import annotations

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV, _members
from problems import linear

__all__ = ["compile_kernels"]


def compile_kernels(quick: bool = False):
    """Load compiled code, for tall and for wide data.

    The first small fits of a process do without it. Which those are must not depend on the order of the groups.
    """
    if quick:
        return
    for p in (60, 600):
        X, y = linear(300, p)
        for solver in _members.SOLVERS.keys() - {"interpolator", "orthogonal"}:
            OLSEnsembleRegressor(600, 30, solver=solver, random_state=0).fit(X, y)
        OLSEnsembleRegressorCV(random_state=0).fit(X, y)
