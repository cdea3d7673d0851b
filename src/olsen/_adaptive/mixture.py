"""Choose the mixture of sampling schemes of every target, from rows or from moments of folds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import Arrangement
from .._data.folds import blas_for, first_least
from .._execution.threads import Threads
from .._tuning.penalties import expected_sizes_of
from .._tuning.risk_curves import Paths
from .._tuning.selection import MAX_SIZES, ComparedInFolds, SelectionData, SizeOptions
from .._tuning.selection import SEED as PATH_SEED
from ..subsets import DrawnColumns
from .choice import Choice, choose, null_choice
from .schemes import LARGEST_ROW_FRACTION

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# columns of uniform members where rows stay implicit, at most: 100 members of 256 of 20 000 sparse
# columns take half a second
MAX_IMPLICIT_SIZE = 256
# number for which the size of uniform members is chosen, if the ensemble is infinite
MANY_MEMBERS = 1000


@dataclass(frozen=True, kw_only=True)
class MixtureSelection:
    """The chosen mixture of sampling schemes for one target."""

    choice: Choice
    uniform_size: int  # columns of uniform members
    # columns that vary in an order by content, from which uniform members are drawn
    drawn_columns: DrawnColumns | None = None
    prediction: Array | None = None  # (n, 1) of held-out rows


def choose_mixture(
    data: SelectionData, schemes: frozenset[str], k: float, threads: Threads
) -> list[MixtureSelection]:
    """Choose the mixture of sampling schemes of every target, for k members."""
    # in a mixture with penalised fits, a rough size of uniform members is enough
    paths = Paths(PATH_SEED, "balanced", threads, batch=2, min_batches=2)
    options = SizeOptions(max_sizes=MAX_SIZES // 2)
    n_members = MANY_MEMBERS if np.isinf(k) else k
    arranged = data.arranged()
    chosen = _choose(arranged.data, options, schemes, n_members, paths)
    targets = [None] * len(chosen) if data.Y is None else list(data.Y.T)
    return [
        _rearranged(selection, arranged.arrangement, y)
        for selection, y in zip(chosen, targets, strict=True)
    ]


def _rearranged(
    selection: MixtureSelection, arrangement: Arrangement, y: Array | None
) -> MixtureSelection:
    """A choice in an arrangement, for rows and columns in their original order."""
    choice = selection.choice.rearranged(arrangement)
    prediction = None if y is None else _held_out_prediction(choice, y)
    return replace(
        selection,
        choice=choice,
        prediction=prediction,
        drawn_columns=DrawnColumns(arrangement.columns),
    )


def _choose(
    data: SelectionData, options: SizeOptions, schemes: frozenset[str], k: float, paths: Paths
) -> list[MixtureSelection]:
    """Choose the mixture of each target; the best size of uniform members in the folds grows with
    the root of the number of rows.
    """
    n, p = data.shape
    largest = min(p, int(LARGEST_ROW_FRACTION * (n - data.null_rank)))
    with blas_for((n, p)):
        compared = data.in_folds(options, paths)
        folds = compared.folds
        best = _best_sizes(compared, k, n)
        sizes = np.array([max(1, min(round(size), largest)) for size in best.tolist()])
        if compared.ridge_penalty is None:  # all columns are constant
            choices = null_choice(folds)
        else:
            penalty = compared.ridge_penalty
            choices = choose(replace(folds, ridge_penalty=penalty, uniform_size=sizes), schemes)
    return [
        MixtureSelection(choice=choice, uniform_size=int(size))
        for choice, size in zip(choices, sizes, strict=True)
    ]


def _best_sizes(compared: ComparedInFolds, k: float, n: int) -> Array:
    """The best sizes (q,) of uniform members on n rows; where rows stay implicit, the degrees of freedom of
    ridge regression, which uniform members of that size have in the limit.
    """
    folds = compared.folds
    if compared.curves is not None:
        growth = np.sqrt(n / compared.n_training_rows)
        best = [float(curve.sizes[first_least(curve.mse(k))]) for curve in compared.curves]
        return np.asarray(growth * np.array(best))
    if compared.ridge_penalty is None:
        return np.ones(folds.n_targets)
    sizes = expected_sizes_of(folds.all_rows, compared.ridge_penalty)
    return np.minimum(sizes, MAX_IMPLICIT_SIZE)


def _held_out_prediction(choice: Choice, y: Array) -> Array | None:
    """Held-out predictions (n, 1), averaged over repeats; None if rows were never held out."""
    total = np.zeros(len(y))
    count = np.zeros(len(y))
    for fit in choice.fits:
        if fit.rows is None or fit.residual is None:
            return None
        np.add.at(total, fit.rows, y[fit.rows] - fit.residual)
        np.add.at(count, fit.rows, 1)
    return (total / count)[:, None] if count.all() else None
