"""Members of several laws in given shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compressed import Subsets
from ._drawing import draw_members

__all__ = ["check_mixture", "draw_mixture", "laws_of_members"]

LAWS = 16  # first of the streams of a seed for the columns of several laws, one stream for each


def laws_of_members(shares: ArrayLike, stop: int) -> NDArray[np.int64]:
    """Law of each of the first members: whatever their number, every law has its share but for about one member.

    The member j of a law with share w is due at (j + 1/2) / w, and members come as they are due. So a member's law does
    not depend on how many follow. Of L laws, each is at most 1/2 + L w / 2 members off its share.

    Examples
    --------
    >>> from olsen.subsets import laws_of_members
    >>> laws_of_members([0.5, 0.25, 0.25], 8).tolist()
    [0, 1, 2, 0, 0, 1, 2, 0]
    """
    share = np.asarray(shares, dtype=np.float64)
    count = np.where(share > 0, np.ceil(share * (stop + len(share))) + 1, 0).astype(np.int64)
    law = np.repeat(np.arange(len(share)), count)
    number = np.arange(len(law)) - np.repeat(np.cumsum(count) - count, count)
    return law[np.argsort((number + 0.5) / share[law], kind="stable")[:stop]]


def draw_mixture(
    n_rows: int,
    shares: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    start: int,
    stop: int,
    **how: Any,
) -> Subsets:
    """Columns of members `start` to `stop`, of which each law, a row of `probabilities`, has its share.

    Laws draw from streams of their own, each with groups of its own where the design is balanced. `how` goes to
    :func:`draw_members`.
    """
    n_laws, n_columns = probabilities.shape
    law = laws_of_members(shares, stop)
    before, after = (np.bincount(law[:end], minlength=n_laws) for end in (start, stop))
    drawn = []
    for i in np.flatnonzero(after > before).tolist():
        features, _ = draw_members(
            n_rows,
            n_columns,
            int(after[i]),
            start=int(before[i]),
            max_features=probabilities[i],
            stream=LAWS + i,
            **how,
        )
        drawn.append(features)
    if not drawn:
        return Subsets(n_columns, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64))
    return _interleaved(drawn, law[start:])


def _interleaved(drawn: list[Subsets], law: NDArray[np.int64]) -> Subsets:
    """Members of several draws in the order in which their laws come."""
    place = np.argsort(law, kind="stable")  # where the members of one law after the other go
    sizes = np.empty(len(law), dtype=np.int64)
    sizes[place] = np.concatenate([features.sizes for features in drawn])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    own = np.repeat(ends[place], sizes[place])
    within = np.arange(ends[-1]) - np.repeat(np.cumsum(sizes[place]) - sizes[place], sizes[place])
    indices = np.empty(int(ends[-1]), dtype=np.int64)
    indices[own + within] = np.concatenate([features.indices for features in drawn])
    return Subsets(drawn[0].n_items, ends, indices)


def check_mixture(shares: NDArray[np.float64], probabilities: NDArray[np.float64]) -> None:
    """Shares sum to one, one for each law."""
    if probabilities.ndim != 2 or shares.shape != probabilities.shape[:1]:
        raise ValueError(
            f"shares has shape {shares.shape}, but one share is needed for each row of max_features, which has shape "
            f"{probabilities.shape}."
        )
    if not (np.all(shares >= 0) and abs(float(shares.sum()) - 1) < 1e-9):
        raise ValueError(f"shares must be at least 0 and sum to 1; got {shares.tolist()}.")
