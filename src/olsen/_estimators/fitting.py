"""The steps of a fit that both ensembles take: parameters checked, members kept or drawn, solved and combined."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _members
from .._engines import Engine, NeedsRows, process_of
from .._execution import messages
from .._selection.combining import Combination, combine
from ..subsets import Design
from .fitted import FittedEnsemble, FittedResult
from .inputs import (
    check_choice,
    check_common,
    check_count,
    check_determinantal,
    check_number,
    check_shape,
    check_switch,
    resolve_seed,
)
from .training_data import fingerprint, same_rows

__all__ = ["FittingEnsemble"]

PARAMETER = {"kind": "design", "seed": "random_state"}  # what users call a part of a Design
SOLVING = ("solver", "rcond", "tol")
MANY_OPERATIONS = 1e12  # of drawing determinantal members: a few minutes of one core
SMALLEST_TOL = float(np.finfo(np.float64).tiny)


class FittingEnsemble(FittedEnsemble):
    """An ensemble with the parameters of members."""

    _estimated_scale = "loo"  # what stands for a scale that is to be estimated

    n_estimators: Any
    max_features: Any
    max_samples: int | float
    sampling: str
    design: str
    scale: float | str
    mixing: str
    fit_intercept: bool
    solver: str
    rcond: float | None
    tol: float | None
    warm_start: bool
    n_jobs: int | None
    random_state: Any
    keep_rows: bool | float
    verbose: int

    def _check_parameters(self) -> None:
        if isinstance(self.n_estimators, float) and self.n_estimators == np.inf:
            self._check_limit()
        else:
            check_count("n_estimators", self.n_estimators)
        check_choice("sampling", self.sampling, ("fixed", "bernoulli", "determinantal"))
        if self.sampling == "determinantal":
            check_determinantal(self)
        check_choice("design", self.design, ("balanced", "independent"))
        check_choice("mixing", self.mixing, ("mean", "stacking"))
        check_choice("solver", self.solver, _members.ASKED_FOR)
        check_common(self)
        check_switch("warm_start", self.warm_start)
        if self.tol is not None:
            check_number("tol", self.tol, "a positive number, or None for 1e-9", SMALLEST_TOL)
        word = self._estimated_scale
        if not (isinstance(self.scale, str) and self.scale == word):
            check_number("scale", self.scale, f"a finite number, or {word!r} to estimate it", -np.inf)
        if not isinstance(self.keep_rows, (bool, np.bool_)) and self.keep_rows != np.inf:
            check_number("keep_rows", self.keep_rows, "True, False, or a number of bytes", 0.0)

    def _check_limit(self) -> None:
        """Refuse infinitely many members where their mean has no closed form."""
        if self.sampling != "determinantal":
            raise ValueError(
                f"n_estimators=inf needs sampling='determinantal', whose mean over all subsets is known in closed "
                f"form; with sampling={self.sampling!r} it is not. Give a number of members."
            )
        if self.mixing != "mean":
            raise ValueError(f"mixing={self.mixing!r} weighs single members, but n_estimators=inf has none.")

    def _kept(self, engine: Engine) -> FittedResult | None:
        """The earlier result that a warm start goes on from: one of the same rows."""
        before = self._fitted
        if not self.warm_start or before is None or before.rows is None or engine.problem is None:
            return None
        return before if same_rows(before.rows, before.fingerprint, engine.problem) else None

    def _seed(self, kept: FittedResult | None) -> int:
        """Drawn once from `random_state`; a warm start from the same object keeps its seed."""
        if kept is not None and not isinstance(self.random_state, Integral) and self.random_state is kept.random_state:
            return kept.design.seed
        return resolve_seed(self.random_state)

    def _design(
        self,
        engine: Engine,
        seed: int,
        max_features: Any,
        max_samples: int | float,
        shares: NDArray[np.float64] | None = None,
    ) -> Design:
        """How members are drawn: parameters may be changed on the object later, the members may not."""
        columns = np.array(max_features, dtype=np.float64) if np.ndim(max_features) else max_features
        design = engine.complete(
            Design(0, 0, seed, columns, max_samples, self.sampling, self.design, self.fit_intercept, shares=shares)
        )
        check_shape(design)
        if self.sampling != "determinantal":
            return design
        return replace(design, process=process_of(engine, design, draws=self.n_estimators != np.inf))

    def _fit_members(
        self,
        engine: Engine,
        design: Design,
        k: float,
        kept: FittedResult | None,
        scale: float | str | None = None,
    ) -> FittedResult:
        """The result with k members: those kept and new ones, or all anew."""
        start = 0 if kept is None or kept.members is None or self._weighs_together(kept) else len(kept.members)
        how = self._combine(engine, design, k, self.scale if scale is None else scale)
        members = None if kept is None or not start else kept.members
        if start < k:
            _recommend_limit(design, k)
            new = engine.solve(design, start, k, how.weights)
            members = new if members is None else members.merge(new)
        assert members is not None
        look = None if engine.problem is None else fingerprint(engine.problem, at_any_cost=self.warm_start)
        return FittedResult(
            design,
            members,
            how.scale,
            options=engine.options,
            advantage=how.advantage,
            fingerprint=look,
            why_no_rows=engine.why_no_rows,
            data=engine.again(),
            random_state=self.random_state,
        )

    def _weighs_together(self, kept: FittedResult) -> bool:
        """Whether weights are those of all members together, so that none can be kept."""
        if self.mixing == "stacking" or kept.members is None or np.inf in (self.n_estimators, kept.members.number):
            return True
        return bool(np.ptp(kept.members.weights) > 0)

    def _obstacle(self, kept: FittedResult, engine: Engine, design: Design, k: float) -> str | None:
        """Why members of an earlier fit cannot be kept; None: they can."""
        if kept.members is None or kept.options is None:
            return "the members of the fitted ensemble are not known any more."
        if self._weighs_together(kept):
            return None
        if k < len(kept.members):
            return (
                f"n_estimators={k} is below the {len(kept.members)} members of the fitted ensemble; with "
                f"warm_start=True members can only be added."
            )
        changes = [(PARAMETER.get(name, name), getattr(kept.design, name), getattr(design, name))
                   for name in [design.first_change(kept.design)] if name is not None]  # fmt: skip
        changes += [(name, getattr(kept.options, name), getattr(engine.options, name)) for name in SOLVING]
        for name, old, new in changes:
            if not np.array_equal(old, new):
                return (
                    f"{name} was changed from {old!r} to {new!r}, but warm_start=True keeps members made with the "
                    f"former. Set warm_start=False to start again."
                )
        return None

    def _combine(self, engine: Engine, design: Design, k: float, scale: float | str) -> Combination:
        """Weights and scale of the members; from leave-one-out residuals where they are asked for."""
        stacking = self.mixing == "stacking"
        if scale != "loo" and not stacking:
            return Combination(None, float(scale), None)
        if engine.problem is None:
            raise NeedsRows(
                f"scale={scale!r} with mixing={self.mixing!r} needs leave-one-out residuals of all rows: "
                f"{engine.why_no_rows}. Or use a number for scale and mixing='mean'."
            )
        wanted = None if scale == "loo" else float(scale)
        return combine(engine.problem.in_units[0], design, k, wanted, stacking, engine.options.quietly)


def _recommend_limit(design: Design, k: float) -> None:
    """Say that the limit is there where drawing that many determinantal members takes minutes."""
    work = 2.0 * design.n_columns * design.expected_size**2 * k
    if design.sampling == "determinantal" and MANY_OPERATIONS < work < np.inf:
        messages.warn(
            f"drawing {k} determinantal members of {design.expected_size:g} of {design.n_columns} columns takes about "
            f"{work:.0e} operations. n_estimators=np.inf gives their exact mean, as fast as one ridge regression.",
        )
