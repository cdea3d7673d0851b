"""Choose the mixture of sampling schemes of every target, from rows or from moments of folds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._data.folds import blas_for, first_least
from .._execution.threads import Threads
from .._tuning.risk_curves import Paths
from .._tuning.selection import MAX_SIZES, SelectionData, SizeOptions
from .._tuning.selection import SEED as PATH_SEED
from .choice import Choice, choose, null_choice
from .schemes import LARGEST_ROW_FRACTION

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MANY_MEMBERS = (
    1000  # number for which the size of uniform members is chosen, if the ensemble is infinite
)


@dataclass(frozen=True, kw_only=True)
class MixtureSelection:
    """The chosen mixture of sampling schemes for one target."""

    choice: Choice
    uniform_size: int  # columns of uniform members
    column_order: Indices | None = None  # order by content, from which uniform members are drawn
    prediction: Array | None = None  # (n, 1) of held-out rows


def choose_mixture(
    data: SelectionData, schemes: frozenset[str], k: float, threads: Threads
) -> list[MixtureSelection]:
    """Choose the mixture of sampling schemes of every target, for k members."""
    # in a mixture with penalised fits, a rough size of uniform members is enough
    paths = Paths(PATH_SEED, "balanced", threads, batch=2, min_batches=2)
    options = SizeOptions(max_sizes=MAX_SIZES // 2)
    n_members = MANY_MEMBERS if np.isinf(k) else k
    return [
        _choose_for_target(target, options, schemes, n_members, paths) for target in data.targets()
    ]


def _choose_for_target(
    data: SelectionData, options: SizeOptions, schemes: frozenset[str], k: float, paths: Paths
) -> MixtureSelection:
    """Choose the mixture of one target; rows are first ordered by content, moments are used as they
    are.
    """
    ordered, arrangement = data.arranged()
    selection = _choose(ordered, options, schemes, k, paths)
    if arrangement is None or data.Y is None:
        return selection
    choice = selection.choice.rearranged(arrangement)
    prediction = _held_out_prediction(choice, data.Y)
    return replace(
        selection, choice=choice, prediction=prediction, column_order=arrangement.columns
    )


def _choose(
    data: SelectionData, options: SizeOptions, schemes: frozenset[str], k: float, paths: Paths
) -> MixtureSelection:
    """Choose the mixture; the best size of uniform members in the folds grows with the root of the
    number of rows.
    """
    n, p = data.shape
    with blas_for((n, p)):
        curve, n_training_rows, folds, penalty = data.in_folds(options, paths)
        average = curve.average
        size = round(
            float(average.sizes[first_least(average.mse(k))]) * np.sqrt(n / n_training_rows)
        )
        size = max(1, min(size, p, int(LARGEST_ROW_FRACTION * (n - data.null_rank))))
        if penalty is None:  # all columns are constant
            return MixtureSelection(choice=null_choice(folds), uniform_size=size)
        choice = choose(replace(folds, ridge_penalty=penalty, uniform_size=size), schemes)
    return MixtureSelection(choice=choice, uniform_size=size)


def _held_out_prediction(choice: Choice, Y: Array) -> Array | None:
    """Held-out predictions (n, 1), averaged over repeats; None if rows were never held out."""
    total = np.zeros(len(Y))
    count = np.zeros(len(Y))
    for fit in choice.fits:
        if fit.rows is None or fit.residual is None:
            return None
        np.add.at(total, fit.rows, Y[fit.rows, 0] - fit.residual)
        np.add.at(count, fit.rows, 1)
    return (total / count)[:, None] if count.all() else None
