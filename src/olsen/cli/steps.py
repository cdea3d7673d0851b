"""The steps before an ensemble as plain values: what a model file holds of a pipeline, checked before it is built.

A node is a dict with its ``kind`` and what that kind was fitted to. Every kind works on columns one by one, so a node
has a width: the number of columns that come out for those that go in.

============== ===================================================== =================================
kind           values                                                scikit-learn
============== ===================================================== =================================
passthrough                                                          ``"passthrough"``
scale          ``mean``, ``scale``: lists or None                    ``StandardScaler``
one_hot        ``categories``, ``dropped`` (places or None),         ``OneHotEncoder``
               ``unknown``
ordinal        ``categories``, ``unknown`` (None or a number)        ``OrdinalEncoder``
impute         ``strategy``, ``values``, ``gaps`` (places with an    ``SimpleImputer``
               indicator, or None)
table_column   ``how``, see the module `columns`                     ``olsen.cli.TableColumn``
pipeline       ``steps``: lists of a name and a node                 ``Pipeline``
columns        ``parts``: lists of a name, a node and places of      ``ColumnTransformer``
               columns; ``sparse``, ``prefix``
============== ===================================================== =================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from .columns import labels
from .shown_text import quoted

__all__ = ["MISSING", "STRATEGIES", "Node", "Steps", "StepsError", "encoded_names", "holds_text", "leaves", "width"]

Node = dict[str, Any]
MISSING = None  # a category of cells that are missing; NaN in memory
STRATEGIES = ("mean", "median", "most_frequent", "constant")
VALUES = {
    "passthrough": (),
    "scale": ("mean", "scale"),
    "one_hot": ("categories", "dropped", "unknown"),
    "ordinal": ("categories", "unknown"),
    "impute": ("strategy", "values", "gaps"),
    "table_column": ("how",),
    "pipeline": ("steps",),
    "columns": ("parts", "sparse", "prefix"),
}


class StepsError(ValueError):
    """Steps that no pipeline can have, and why."""


class Steps(NamedTuple):
    """All that comes before an ensemble.

    Parameters
    ----------
    names : list of str, or int
        Names of the columns that go in, or their number where they had no names.
    steps : list
        Pairs of a name and a node, in their order.
    last : str or None
        Name of the step that is the ensemble; None for an ensemble without steps, which is no pipeline.
    """

    names: list[str] | int
    steps: list[tuple[str, Node]]
    last: str | None

    @property
    def n_columns(self) -> int:
        """Columns that go in."""
        return self.names if isinstance(self.names, int) else len(self.names)

    @property
    def input_names(self) -> list[str]:
        """Names of the columns that go in, made up as scikit-learn does where they have none."""
        return [f"x{i}" for i in range(self.names)] if isinstance(self.names, int) else list(self.names)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"names": self.names, "steps": [list(step) for step in self.steps], "last": self.last}

    @classmethod
    def checked(cls, plain: Any) -> tuple[Steps, int]:
        """What `plain` described, and the number of columns that come out; an error if it cannot be."""
        _wanted("steps", plain, dict)
        if set(plain) != {"names", "steps", "last"}:
            raise StepsError("steps lack names, steps or last, or hold more")
        names, last = plain["names"], plain["last"]
        if isinstance(names, list):
            names = [_wanted("a name", name, str) for name in names]
        if isinstance(names, bool) or not isinstance(names, (int, list)):
            raise StepsError("the columns that go in are neither named nor counted")
        n = len(names) if isinstance(names, list) else names
        if not 1 <= n < 10**9 or (isinstance(names, list) and len(set(names)) < n):
            raise StepsError("the columns that go in are missing or repeated")
        if last is not None:
            _wanted("the last step", last, str)
        steps = [_named(step) for step in _wanted("steps", plain["steps"], list)]
        if last is None and steps:
            raise StepsError("there are steps, but no name for the ensemble after them")
        found = cls(names, steps, last)
        return found, _checked_chain(steps, n, first=True)


# Checks: a node is of its kind, and fits the columns that go in


def _wanted(what: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise StepsError(f"{what} is of the wrong kind ({type(value).__name__})")
    return value


def _named(step: Any) -> tuple[str, Node]:
    if not isinstance(step, (list, tuple)) or len(step) != 2:
        raise StepsError("a step is not a name and what it does")
    return _wanted("the name of a step", step[0], str), _wanted("a step", step[1], dict)


def _checked_chain(steps: list[tuple[str, Node]], n: int, first: bool = False) -> int:
    if len({name for name, _ in steps}) < len(steps):
        raise StepsError("two steps have one name")
    for place, (_, node) in enumerate(steps):
        n = _checked(node, n, first=first and place == 0)
    return n


def _checked(node: Node, n: int, first: bool = False) -> int:
    """Columns that come out of a node for n that go in."""
    kind = node.get("kind")
    if not isinstance(kind, str) or kind not in VALUES:
        raise StepsError(f"a step is of kind {quoted(kind)}, which is not known")
    if set(node) != {"kind", *VALUES[kind]}:
        raise StepsError(f"a step of kind {kind} does not have the values of one")
    if kind == "columns" and not first:
        raise StepsError("columns are divided in a step that is not the first")
    CHECKS[kind](node, n)
    return width(node, n)


def _numbers(what: str, values: Any, n: int) -> None:
    _wanted(what, values, list)
    if len(values) != n:
        raise StepsError(f"{what} has {len(values)} entries for {n} columns")
    for value in values:
        _wanted(what, value, (int, float))
        if not math.isfinite(value):
            raise StepsError(f"{what} is not finite")


def _check_scale(node: Node, n: int) -> None:
    for name in ("mean", "scale"):
        if node[name] is not None:
            _numbers(name, node[name], n)
    if any(value <= 0 for value in node["scale"] or ()):
        raise StepsError("a scale is not positive")


def _check_categories(node: Node, n: int) -> None:
    if len(_wanted("categories", node["categories"], list)) != n:
        raise StepsError(f"there are categories for {len(node['categories'])} of {n} columns")
    for known in node["categories"]:
        if not _wanted("categories", known, list) or len({_key(value) for value in known}) < len(known):
            raise StepsError("categories of a column are missing or repeated")
        kinds = {isinstance(value, str) for value in known if value is not MISSING}
        if len(kinds) > 1:
            raise StepsError("categories of a column are texts and numbers")
        for value in known:
            if value is not MISSING and not isinstance(value, str):
                _numbers("categories", [value], 1)


def _key(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) or value is None else repr(value)


def _check_one_hot(node: Node, n: int) -> None:
    _check_categories(node, n)
    if node["unknown"] not in ("error", "ignore"):
        raise StepsError("what to do with unknown categories is not known")
    dropped = node["dropped"]
    if dropped is None:
        return
    if len(_wanted("dropped", dropped, list)) != n:
        raise StepsError("dropped categories are not those of the columns")
    for place, known in zip(dropped, node["categories"], strict=True):
        if place is not None and not 0 <= _wanted("dropped", place, int) < len(known):
            raise StepsError("a dropped category is none")


def _check_ordinal(node: Node, n: int) -> None:
    _check_categories(node, n)
    if node["unknown"] is not None:
        _numbers("unknown", [node["unknown"]], 1)


def _check_impute(node: Node, n: int) -> None:
    if node["strategy"] not in STRATEGIES:
        raise StepsError("the strategy for missing cells is not known")
    values = _wanted("values", node["values"], list)
    if len(values) != n:
        raise StepsError(f"there are values for {len(values)} of {n} columns")
    for value in values:
        if not isinstance(value, str):
            _numbers("values", [value], 1)
    gaps = node["gaps"]
    if gaps is None:
        return
    if sorted(set(_wanted("gaps", gaps, list))) != gaps or any(
        not 0 <= _wanted("gaps", place, int) < n for place in gaps
    ):
        raise StepsError("columns with gaps are not among the columns, or not in their order")


def _check_table_column(node: Node, n: int) -> None:
    if n != 1:
        raise StepsError(f"a column of a table is made of {n} columns")
    _wanted("how", node["how"], dict)  # what is in it is checked where columns are, by the schema


def _check_pipeline(node: Node, n: int) -> None:
    _checked_chain([_named(step) for step in _wanted("steps", node["steps"], list)], n)


def _check_columns(node: Node, n: int) -> None:
    names = set()
    for part in _wanted("parts", node["parts"], list):
        if not isinstance(part, (list, tuple)) or len(part) != 3:
            raise StepsError("a part of the columns is not a name, a step and places")
        name, inner, places = part
        names.add(_wanted("the name of a step", name, str))
        for place in _wanted("places", places, list):
            if not 0 <= _wanted("places", place, int) < n:
                raise StepsError(f"a step uses column number {place} of {n}")
        _checked(_wanted("a step", inner, dict), len(places))
    if len(names) < len(node["parts"]) or not node["parts"]:
        raise StepsError("two steps have one name, or there is none")
    for name in ("sparse", "prefix"):
        _wanted(name, node[name], bool)


CHECKS = {
    "passthrough": lambda node, n: None,
    "scale": _check_scale,
    "one_hot": _check_one_hot,
    "ordinal": _check_ordinal,
    "impute": _check_impute,
    "table_column": _check_table_column,
    "pipeline": _check_pipeline,
    "columns": _check_columns,
}


# What a checked node says


def width(node: Node, n: int) -> int:
    """Columns that come out for n that go in."""
    return len(encoded_names(node, [""] * n))


def encoded_names(node: Node, names: list[str]) -> list[str]:
    """Names of the columns that come out, from those of the columns that go in."""
    kind = node["kind"]
    if kind == "one_hot":
        return [
            f"{name}={'missing' if value is MISSING else value}"
            for name, known, dropped in zip(
                names, node["categories"], node["dropped"] or [None] * len(names), strict=True
            )
            for place, value in enumerate(known)
            if place != dropped
        ]
    if kind == "impute":
        return [*names, *(f"{names[place]} is missing" for place in node["gaps"] or ())]
    if kind == "table_column":
        return labels(node["how"])
    if kind == "pipeline":
        for _, inner in node["steps"]:
            names = encoded_names(inner, names)
        return names
    if kind == "columns":
        parts = [encoded_names(inner, [names[i] for i in places]) for _, inner, places in node["parts"]]
        return [name for part in parts for name in part]
    return names


def leaves(node: Node) -> Iterator[Node]:
    """The steps of a node that do something, in their order."""
    if node["kind"] == "pipeline":
        for _, inner in node["steps"]:
            yield from leaves(inner)
    elif node["kind"] == "columns":
        for _, inner, _ in node["parts"]:
            yield from leaves(inner)
    else:
        yield node


def holds_text(node: Node, place: int) -> bool:
    """Whether a column that goes in holds text: some step knows its categories, and they are texts."""
    for leaf in leaves(node):
        if "categories" in leaf:
            return any(isinstance(value, str) for value in leaf["categories"][place])
        if leaf["kind"] == "impute" and isinstance(leaf["values"][place], str):
            return True
    return False
