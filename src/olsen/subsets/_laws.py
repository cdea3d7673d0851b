"""Sampling laws: from random keys to the subsets of a group of members (paper, section 3, and what it leaves open)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _keys
from ._compressed import Subsets

__all__ = ["Law", "at_unit_steps", "law"]

Keys = NDArray[np.uint64]
Law = Callable[[Keys], "NDArray[Any] | Subsets"]


def law(
    n_items: int,
    size: int | None,
    probabilities: ArrayLike | None,
    sampling: str,
    per_group: int,
    wanted: range | None = None,
) -> Law:
    """The function that turns random keys, one row for each group, into the group's subsets.

    They come as rows of ascending item numbers where all have one size, as a mask (subsets, items) or as they are. Of
    groups with very many members (small probabilities) only the `wanted` ones may be asked for, where probabilities are
    given.
    """
    chance = np.full(n_items, (size or 0) / n_items) if probabilities is None else np.asarray(probabilities, float)
    steps = np.arange(per_group)[slice(None) if wanted is None else slice(wanted.start, wanted.stop)] / per_group
    if sampling == "bernoulli":
        return lambda raw: _flip_coins(raw[:, :n_items], chance, steps)
    if size is None:
        return lambda raw: _systematic(raw, chance, steps)
    if per_group == 1:
        return lambda raw: _smallest_keys(raw[:, :n_items], size)
    return lambda raw: _cut_blocks(raw[:, :n_items], size, per_group)


def _smallest_keys(raw: Keys, size: int) -> NDArray[Any]:
    """The `size` items with the smallest keys: uniform over subsets, and a prefix of the permutation of the keys."""
    n_items = raw.shape[1]
    if size == n_items:
        return np.broadcast_to(np.arange(n_items), raw.shape)
    keys, mask = _keys.numbered(raw)
    keys.partition(size - 1, axis=1)
    return _keys.ascending(keys[:, :size] & mask, n_items)


def _cut_blocks(raw: Keys, size: int, per_group: int) -> NDArray[Any]:
    """Consecutive blocks of one permutation, or everything but such a block when subsets exceed one half."""
    n_groups, n_items = raw.shape
    block = min(size, n_items - size)
    order = _keys.order(raw)[:, : per_group * block].reshape(n_groups * per_group, block)
    if block == size:
        return _keys.ascending(order, n_items)
    kept = np.ones((len(order), n_items), dtype=bool)
    np.put_along_axis(kept, order, False, axis=1)
    return kept


def _flip_coins(raw: Keys, chance: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Item j joins member b of a group when frac(u_j + b / per_group) < chance_j: coin flips that avoid each other."""
    u = _keys.uniform(raw)[:, None, :] + steps[:, None]
    return ((u % 1.0) < chance).reshape(-1, len(chance))


def _systematic(raw: Keys, chance: NDArray[np.float64], steps: NDArray[np.float64]) -> Subsets:
    """Systematic sampling in random order: lay the probabilities end to end and pick at unit steps.

    Member b of a group starts its steps at frac(u + b / per_group). Item j, laid on [low_j, high_j), is picked when a
    point u + integer falls there, which has probability exactly chance_j.
    """
    n_items = len(chance)
    return at_unit_steps(_keys.order(raw[:, :n_items]), _keys.uniform(raw[:, n_items]), chance, steps)


def at_unit_steps(
    order: NDArray[np.int64], start: NDArray[np.float64], chance: NDArray[np.float64], steps: NDArray[np.float64]
) -> Subsets:
    """Systematic sampling from orders that several laws may share: pick at unit steps along the probabilities.

    Parameters
    ----------
    order : ndarray of shape (n_groups, n_items)
        An order of the items for each group of members.
    start : ndarray of shape (n_groups,)
        Where the steps of a group start, between 0 and 1.
    chance : ndarray of shape (n_items,)
        Probability of every item.
    steps : ndarray of shape (n_members,)
        What each member of a group starts later than its group.

    Returns
    -------
    Subsets
        Of the members of one group after the other.
    """
    # a search for the points of every order costs less than a look at all items
    n_groups, n_items = order.shape
    high = np.cumsum(chance[order], axis=1)
    span = float(np.ceil(high[:, -1].max(initial=0.0))) + 1
    points = ((start[:, None] + steps) % 1.0)[:, :, None] + np.arange(int(span))  # (groups, members, steps)
    there = points < high[:, -1, None, None]
    group, member, _ = np.nonzero(there)
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=(1, 2)))])
    places = np.empty(len(group), dtype=np.int64)
    for g in range(n_groups):
        here = slice(ends[g], ends[g + 1])
        places[here] = np.searchsorted(high[g], points[g][there[g]], side="right")
    items = order[group, np.minimum(places, n_items - 1)]
    number = group * len(steps) + member
    picked = np.sort(number * n_items + items)
    owner, items = np.divmod(picked[np.diff(picked, prepend=-1) > 0], n_items)  # rounding may pick an item twice
    count = np.bincount(owner, minlength=n_groups * len(steps))
    return Subsets(n_items, np.concatenate([[0], np.cumsum(count)]), items)
