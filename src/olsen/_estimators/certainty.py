"""What a fit is asked about its uncertainty: computed from the training data, wherever they are, and kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._engines import Blocks, Engine, Memory, NeedsRows, Stream
from .._engines.determinantal import drawable, uniform_members
from .._engines.left_out import FoldFit, Refit
from .._execution.threads import Sharing
from .._members import Members
from .._members import by_target as members_by_target
from .._selection.fold_data import SEED as FOLD_SEED
from . import uncertainty
from .draws import FEWEST_BATCHES, Draws, Replicates, by_target
from .folded import Folded
from .moment_spread import MomentSpread, mean_inverse

if TYPE_CHECKING:
    from .fitted import FittedResult

__all__ = ["Certainty"]

READ_AGAIN = "give fit a function that returns the iterator, or a file, so that it can be read again"
FOLDS_IN_MEMORY, FOLDS = 10, 5
MOST_ROWS = 200_000  # whose errors make intervals: their quantiles are good to a tenth of a per cent
PILOT = 200  # members that tell how much infinitely many vary one by one
SAME = 1e-5  # of the largest coefficient: solvers agree to more digits


class Certainty:
    """How sure a fit is.

    Parameters
    ----------
    fitted : FittedResult
        The fit.
    """

    replicates: Replicates | None = None  # of a tuned model, once they were asked for

    def __init__(self, fitted: FittedResult) -> None:
        self.fitted = fitted

    @cached_property
    def deletions(self) -> uncertainty.Deletions:
        """The ensemble without each of its rows; computed when it is first asked for."""
        rows, members = self.fitted.kept_rows("predict_interval"), self.fitted.members
        assert members is not None
        check = partial(rows.check_members, "predict_interval (and return_std)", fitted=members)
        given = rows.problem, self.fitted.design, members.weights
        return uncertainty.Deletions(*given, self.fitted.scale, check)

    @property
    def default_intervals(self) -> str:
        """The method that ``method="auto"`` stands for."""
        in_memory = self.fitted.rows is not None and self.fitted.n_groups is None and self.fitted.folds is None
        return "jackknife+" if in_memory and self.deletions.changes_fit else "cv+"

    def without_each_row(self, method: str) -> uncertainty.Deletions:
        """The ensemble without each of its rows, for a jackknife."""
        if self.fitted.folds is not None:
            raise ValueError(
                f"method={method!r} leaves out rows one at a time, but schemes and their shares were chosen with these "
                f"rows in. Use method='cv+', in whose folds the choice was made."
            )
        if self.fitted.rows is None:
            again = self.fitted.data is not None and self.fitted.stream is None
            other = "; method='cv+' reads the data again" if again else ""
            raise NeedsRows(
                f"predict_interval(method={method!r}) needs the training rows: {self.fitted.why_no_rows}{other}."
            )
        return self.deletions

    @cached_property
    def folded(self) -> Folded:
        """The ensemble without folds of rows."""
        if self.fitted.folds is not None:
            return self._chosen_in_folds(self.fitted.folds)
        data, members = self._data("predict_interval(method='cv+')")
        if isinstance(data, Stream):
            raise NeedsRows(f"predict_interval needs the training rows: {self.fitted.why_no_rows}.")
        refit = Refit(self.fitted.design, np.asarray(members.weights), self.fitted.scale)
        if isinstance(data, Memory):
            data = self.data_now("predict_interval")
            again = data.solve(self.fitted.design, 0, members.number, members.weights)
            self.fitted.kept_rows("predict_interval").check_members(
                "predict_interval", again.coef, again.intercept, members
            )
            if self.fitted.splits is not None:
                return Folded.of(data.left_out_of(list(self.fitted.splits), refit), self.fitted.n_groups)
        count = FOLDS_IN_MEMORY if isinstance(data, Memory) else FOLDS
        whole, fits = data.left_out(refit, count, self.fitted.design.seed, MOST_ROWS)
        n = sum(len(np.asarray(fit.residual)) for fit in fits)
        if self.fitted.design.n_rows <= MOST_ROWS and n != self.fitted.design.n_rows:
            raise NeedsRows(
                f"the data gave {self.fitted.design.n_rows} rows when they were fitted and {n} now. Fit again."
            )
        if whole is not None and not _same_coefficients(whole, members):
            raise NeedsRows(
                "the data are read again for intervals, and gave other coefficients than when they were fitted. Fit "
                "again; a function that returns blocks must return the same ones every time."
            )
        return Folded.of(fits)

    def _chosen_in_folds(self, fits: list[FoldFit]) -> Folded:
        """The mixture without the folds in which it was chosen; of data that were summed, errors are read."""
        n = self.fitted.design.n_rows
        if fits[0].residual is None:
            data, _ = self._data("predict_interval(method='cv+')")
            fits = data.errors_of(fits, FOLD_SEED, MOST_ROWS, self.fitted.design.n_given or n)
            return Folded.of(fits)
        rows = sum(len(np.asarray(fit.residual)) for fit in fits)
        groups = n if rows > n and self.fitted.n_groups is None else self.fitted.n_groups
        return Folded.of(fits, groups)

    def _data(self, what: str) -> tuple[Engine, Members]:
        """The training data and the members, or an error that says why they are not there."""
        if self.fitted.data is None or self.fitted.members is None:
            again = f", or {READ_AGAIN}" if self.fitted.why_no_rows == Blocks.why_no_rows else ""
            raise NeedsRows(f"{what} needs the training data: {self.fitted.why_no_rows}{again}.")
        return self.fitted.data, self.fitted.members

    @cached_property
    def _moment_spread(self) -> MomentSpread:
        data, members = self._data("a standard error")
        if not self.fitted.design.all_rows:
            raise NeedsRows(
                f"standard errors of members with max_samples={self.fitted.design.max_samples!r} need the training "
                f"rows: {self.fitted.why_no_rows}."
            )
        design, moments = self.fitted.design, data.sums()
        if members.number < np.inf:
            inverse = mean_inverse(moments.G, design.draw(0, len(members))[0], Sharing())
        else:
            assert design.process is not None
            inverse = design.process[0].mean_inverse()
        found = MomentSpread.of(moments, inverse, self.fitted.scale)
        coef = np.asarray(members.space.get(members.coef), dtype=float)
        if not np.allclose(found.coef, coef, rtol=0, atol=SAME * np.abs(coef).max(initial=0.0)):
            raise NeedsRows(
                "standard errors from moments need the data that were fitted, and columns that are not nearly "
                "dependent; here moments give other coefficients than the fit did. Load X as an array in memory."
            )
        return found

    def coef_std(self, what: str, sharing: Sharing) -> NDArray[np.float64]:
        """Standard error of the expected coefficients, (p, q)."""
        if self.fitted.rows is not None:
            return self.deletions.coef_std(sharing)
        self._data(what)
        return self._moment_spread.coef_std()

    def std(self, what: str, X: Any, sharing: Sharing) -> NDArray[np.float64]:
        """Standard error of the expected prediction, (rows, q)."""
        if self.fitted.rows is not None:
            return self.deletions.std(X, sharing)
        self._data(what)
        return self._moment_spread.std(X)

    def error(self, what: str, sharing: Sharing) -> NDArray[np.float64]:
        """Mean squared error of prediction for each target."""
        if self.fitted.rows is not None and self.fitted.folds is None:
            return np.asarray(np.mean(self.deletions.left_out(sharing, plus=False).residual ** 2, axis=0))
        self._data(what)
        return self.folded.mse

    def draws(self, what: str) -> Draws:
        """Batches of members, solved again; computed when they are first asked for. Of infinitely many, of some."""
        self._data(what)
        return self._draws

    def noise(self, what: str) -> Draws:
        """The same for what another draw would change: of infinitely many members only uniform ones were drawn."""
        members = self._data(what)[1]
        return self._draws if len(members) else self._noise_of_limit

    @cached_property
    def _noise_of_limit(self) -> Draws:
        fitted, data = self.fitted, self.data_now("another draw")
        scales, found = np.broadcast_to(fitted.scale, (self._n_targets,)), []
        for t, design in enumerate(fitted.designs or (fitted.design,)):
            share = 0.0 if design.shares is None else design.uniform_share
            count = uniform_members(share) if share > 0 else FEWEST_BATCHES
            zero = np.zeros((FEWEST_BATCHES, self._n_targets, design.n_columns))
            own = Draws(zero, zero[:, :, 0], np.full(FEWEST_BATCHES, 1 / FEWEST_BATCHES), count)
            if share > 0:
                own = Draws.of(data, design.uniform, np.full(count, 1 / count), float(scales[t]) * share)
            found.append(own)
        return by_target(found)

    @property
    def _n_targets(self) -> int:
        members = self.fitted.members
        assert members is not None
        return int(members.coef.shape[1])

    def data_now(self, what: str) -> Any:
        """The training data as they are now, without the moments of then: users can change X."""
        data, _ = self._data(what)
        return replace(data, problem=replace(data.problem)) if isinstance(data, Memory) else data

    def check_unchanged(self, what: str) -> None:
        """Raise unless the training rows in memory still give the members of the fit: users can change X."""
        data, members = self.data_now(what), self.fitted.members
        assert members is not None
        designs = self.fitted.designs or (self.fitted.design,)
        again = members_by_target([data.solve(design, 0, members.number, members.weights) for design in designs])
        self.fitted.kept_rows(what).check_members(what, again.coef, again.intercept, members)

    def limit_coef(self) -> NDArray[np.float64]:
        """Coefficients (p, q) of infinitely many determinantal members, scaled."""
        data = self.data_now("limit_coef_")
        designs = self.fitted.designs or (self.fitted.design,)
        limits = [data.solve(data.complete(replace(design, process=None)), 0, np.inf) for design in designs]
        limit = members_by_target(limits)
        return np.asarray(np.asarray(limit.space.get(limit.coef), dtype=float) * self.fitted.scale)

    @cached_property
    def _draws(self) -> Draws:
        members = self._data("another draw")[1]
        weights = np.asarray(members.weights) if len(members) else np.full(PILOT, 1 / PILOT)
        if np.ptp(weights) > 0:
            raise ValueError(
                "members of this fit are stacked, and another draw of them would get weights of its own: how much it "
                "would change cannot be told from these. Use mixing='mean'."
            )
        data = self.data_now("another draw")
        designs = [drawable(data, design) for design in self.fitted.designs or (self.fitted.design,)]
        scales = np.broadcast_to(self.fitted.scale, (self._n_targets,))
        each = [Draws.of(data, design, weights, float(scales[t])) for t, design in enumerate(designs)]
        found = by_target(each)
        if not len(members):
            return found
        coef = np.asarray(members.space.get(members.coef), dtype=float) * scales
        if not np.allclose(found.mean_coef(), coef, rtol=0, atol=SAME * np.abs(coef).max(initial=0.0)):
            raise NeedsRows(
                "members are solved again to see how they vary, and gave other coefficients than in the fit: the "
                "training data were changed since. Fit again, or give fit a copy (X.copy()) if you go on changing X."
            )
        return found


def _same_coefficients(found: Members, fitted: Members) -> bool:
    a, b = (np.asarray(members.space.get(members.coef), dtype=float) for members in (found, fitted))
    m, n = (np.asarray(members.space.get(members.intercept), dtype=float) for members in (found, fitted))
    near = np.allclose(a, b, rtol=0, atol=SAME * np.abs(b).max(initial=0.0))
    return bool(near and np.allclose(m, n, rtol=SAME, atol=SAME * np.abs(b).max(initial=0.0)))
