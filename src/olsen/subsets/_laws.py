"""Sampling laws: from random keys to the subsets of a group of members (paper, section 3, and what it leaves open)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _keys

__all__ = ["Law", "law"]

Keys = NDArray[np.uint64]
Law = Callable[[Keys], NDArray[Any]]


def law(n_items: int, size: int | None, probabilities: ArrayLike | None, sampling: str, per_group: int) -> Law:
    """The function that turns random keys, one row for each group, into the group's subsets.

    They come as rows of ascending item numbers where all have one size, and as a mask (subsets, items) otherwise.
    """
    chance = np.full(n_items, (size or 0) / n_items) if probabilities is None else np.asarray(probabilities, float)
    if sampling == "bernoulli":
        return lambda raw: _flip_coins(raw[:, :n_items], chance, per_group)
    if size is None:
        return lambda raw: _systematic(raw, chance, per_group)
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


def _flip_coins(raw: Keys, chance: NDArray[np.float64], per_group: int) -> NDArray[np.bool_]:
    """Item j joins member b of a group when frac(u_j + b / per_group) < chance_j: coin flips that avoid each other."""
    u = _keys.uniform(raw)[:, None, :] + (np.arange(per_group) / per_group)[:, None]
    return ((u % 1.0) < chance).reshape(-1, len(chance))


def _systematic(raw: Keys, chance: NDArray[np.float64], per_group: int) -> NDArray[np.bool_]:
    """Systematic sampling in random order: lay the probabilities end to end and pick at unit steps.

    Member b of a group starts its steps at frac(u + b / per_group). Item j, laid on (low_j, high_j], is picked when a
    point u + integer falls there, which has probability exactly chance_j.
    """
    n_items = len(chance)
    order = _keys.order(raw[:, :n_items])
    high = np.cumsum(chance[order], axis=1)
    low = high - chance[order]
    offset = (_keys.uniform(raw[:, n_items])[:, None] + np.arange(per_group) / per_group) % 1.0
    points = offset[:, :, None]
    picked = np.ceil(high[:, None, :] - points) > np.ceil(low[:, None, :] - points)  # (groups, per_group, n_items)
    mask = np.zeros(picked.shape, dtype=bool)
    np.put_along_axis(mask, np.broadcast_to(order[:, None, :], picked.shape), picked, axis=2)
    return mask.reshape(-1, n_items)
