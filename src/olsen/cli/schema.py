"""What a model file may hold: checked whole, before any estimator is built from it.

A file describes its content as a tree of nodes in JSON, as skops writes it. Of the many nodes of skops those are read
that our models consist of: dicts, lists, single values and arrays of numbers, and one of the two ensembles at one
place. No type is looked up by its name, so a file cannot ask for anything else. Then every value must be of its kind,
finite where a prediction depends on it, and of a shape that agrees with all others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._moments import Triangle
from .._selection.curve import SizeCurve
from ..subsets import Design
from .archives import Archive
from .columns import labels
from .recognition import MODEL_MARK
from .shown_text import quoted, shortened
from .steps import Steps, StepsError, leaves

__all__ = ["Content", "ForeignError", "FormatError", "SchemaError", "UntrustedError", "read_content"]

FORMAT = 1
ENSEMBLES = ("OLSEnsembleRegressor", "OLSEnsembleRegressorCV")
NODES = {
    ("DictNode", "builtins", "dict"),
    ("ListNode", "builtins", "list"),
    ("TypeNode", "builtins", "str"),
    ("JsonNode", "builtins", "str"),
    *(("NdArrayNode", "numpy", kind) for kind in ("ndarray", "float64", "float32", "int64", "int32", "bool")),
    *(("ObjectNode", "olsen", name) for name in ENSEMBLES),
}
MOST_STRUCTURE = (
    1 << 22
)  # characters of JSON outside of texts; without the names of columns there are some ten thousand
MOST_COLUMN_STRUCTURE = 1 << 24  # of the description of the columns: more than a million of them
DEEPEST = 40
TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)

COLUMN_KEYS = ("categories", "ordinal", "decimal", "unit", "date", "means", "indicator")
KINDS = ("balanced", "independent")
SAMPLINGS = ("fixed", "bernoulli", "determinantal")
CURVES = ("own", "same", "other")
PRIVATE = "_fitted"
OWN_NAMES = ("feature_names_in_",)  # of a data frame; a model file holds the names of the table instead


class SchemaError(ValueError):
    """A content that no model can have, and why."""


class ForeignError(SchemaError):
    """A content that is not meant to be a model of ours."""


class UntrustedError(SchemaError):
    """A content of types that are not trusted."""


class FormatError(SchemaError):
    """A model in a format that only newer versions read."""

    def __init__(self, number: int, version: str | None) -> None:
        super().__init__(f"format {number}")
        self.number, self.version = number, version


class Content(NamedTuple):
    """The checked content: everything plain."""

    target: str
    columns: list[dict[str, Any]]  # of a table that the command fitted
    steps: Steps | None  # of a pipeline that was fitted in Python
    residuals: Any
    ensemble: str  # name of the class
    state: dict[str, Any]


def read_content(archive: Archive, parameters: Callable[[str], Mapping[str, Any]]) -> Content:
    """Read and check the content of an archive.

    Parameters
    ----------
    archive : Archive
        The file.
    parameters : callable
        Name of an ensemble -> its parameters with their defaults.
    """
    tree = _parsed(_decoded(archive.schema()), MOST_STRUCTURE)
    root = _mapping(tree, "content")
    if not isinstance(root.get("content"), dict) or _type_of(root) != ("DictNode", "builtins", "dict"):
        raise ForeignError("is a skops file, but not a model written by olsen")
    _check_format(root["content"])
    _refuse_foreign(root)
    values = dict(root["content"])
    ensemble, state = _ensemble_of(values.pop("model", None), archive)
    kind = "steps" if "steps" in values else "columns"
    _same_names("the file", values, ("format", "target", kind, "residuals"), ("olsen",))
    target, described = (_text(_single(values[name]), name) for name in ("target", kind))
    learned, steps, p = _learned(described, target) if kind == "columns" else _stepped(described, target)
    residuals = _plain(values["residuals"], archive)
    _check_ensemble(ensemble, state, p, parameters(ensemble))
    _check_residuals(residuals)
    return Content(target, learned, steps, residuals, ensemble, {**parameters(ensemble), **state})


def _learned(text: str, target: str) -> tuple[list[dict[str, Any]], None, int]:
    learned = _columns(text, target)
    return learned, None, _count_encoded(learned)


def _stepped(text: str, target: str) -> tuple[list[dict[str, Any]], Steps, int]:
    plain = _parsed(text, MOST_COLUMN_STRUCTURE)
    try:
        steps, p = Steps.checked(plain)
    except StepsError as error:
        raise SchemaError(str(error)) from None
    if target in steps.input_names:
        raise SchemaError("its target is one of its columns")
    for _, node in steps.steps:
        for leaf in leaves(node):
            if leaf["kind"] == "table_column":
                _check_column(leaf["how"])
    return [], steps, p


# From bytes to nodes


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise SchemaError("its description is not text") from None


def _parsed(text: str, most: int) -> Any:
    """JSON, whose structure is measured before it is built: a byte of it can become fifty in memory."""
    outside = depth = position = 0
    for token in TOKENS.finditer(text):
        outside, position = outside + token.start() - position + 1, token.end()
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if outside > most or depth > DEEPEST:
            raise SchemaError("its description is larger or deeper than that of any model")
    if outside + len(text) - position > most:
        raise SchemaError("its description is larger or deeper than that of any model")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError("its description is damaged") from None


def _type_of(node: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return node.get("__loader__"), node.get("__module__"), node.get("__class__")


def _check_format(content: dict[str, Any]) -> None:
    found = _single(content.get("format")) if "format" in content else None
    number = re.fullmatch(rf"{MODEL_MARK}([0-9]{{1,6}})", found) if isinstance(found, str) else None
    if number is None:
        raise ForeignError("is a skops file, but not a model written by olsen")
    if not 1 <= int(number[1]) <= FORMAT:
        version = _single(content["olsen"]) if "olsen" in content else None
        known = isinstance(version, str) and re.fullmatch(r"[0-9a-z.+]{1,30}", version)
        raise FormatError(int(number[1]), version if known else None)


def _refuse_foreign(tree: Any) -> None:
    foreign = {_type_of(node) for node in _nodes(tree)} - NODES
    if foreign:
        named = sorted({shortened(f"{module}.{name}") for _, module, name in foreign})
        raise UntrustedError(f"asks for types that are not trusted: {', '.join(named[:5])}")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "__loader__" in value:
            if any(isinstance(part, (dict, list)) for part in _type_of(value)):
                raise SchemaError("a type has no name")
            yield value
        for part in value.values():
            yield from _nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part)


# From nodes to plain values


def _plain(node: Any, archive: Archive) -> Any:
    """A dict, a list, a single value or an array of numbers."""
    loader, _, name = _type_of(_mapping(node, "node"))
    if loader == "JsonNode":
        return _single(node)
    if loader == "DictNode":
        return {key: _plain(part, archive) for key, part in _mapping(node.get("content"), "content of a dict").items()}
    if loader == "ListNode":
        return [_plain(part, archive) for part in _listing(node.get("content"), "content of a list")]
    if loader != "NdArrayNode":
        raise SchemaError("an ensemble or a type stands where a value belongs")
    if node.get("type") != "numpy":
        raise SchemaError("an array does not hold numbers")
    values = archive.array(node.get("file"))
    if name == "ndarray":
        return values
    if values.shape or values.dtype.name != name:
        raise SchemaError(f"a number of type {name} is none")
    return values[()]


def _single(node: Any) -> Any:
    """A text, a number, a truth value or None."""
    if not isinstance(node, dict) or _type_of(node) != ("JsonNode", "builtins", "str"):
        _wrong("a single value", node)
    content = node.get("content")
    try:
        value = json.loads(content) if isinstance(content, str) else content
    except (ValueError, RecursionError):
        raise SchemaError("a single value is damaged") from None
    if not isinstance(content, str) or isinstance(value, (dict, list)):
        _wrong("a single value", value)
    return value


def _ensemble_of(node: Any, archive: Archive) -> tuple[str, dict[str, Any]]:
    loader, _, name = _type_of(_mapping(node, "model"))
    if loader != "ObjectNode":
        raise SchemaError("holds no ensemble")
    return str(name), _mapping(_plain(node.get("content"), archive), "model")


# The kinds of values


def _wrong(what: str, value: Any) -> NoReturn:
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    raise SchemaError(f"{what} is of the wrong kind ({type(value).__name__}{shape})")


def _mapping(value: Any, what: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _wrong(what, value)


def _listing(value: Any, what: str) -> list[Any]:
    return value if isinstance(value, list) else _wrong(what, value)


def _text(value: Any, what: str, choices: tuple[str, ...] = ()) -> str:
    if not isinstance(value, str):
        _wrong(what, value)
    if choices and value not in choices:
        raise SchemaError(f"{what} is {quoted(value)}, not one of {', '.join(choices)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise SchemaError(f"{what} is not text") from None
    return str(value)


def _number(value: Any, what: str, finite: bool = True) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        _wrong(what, value)
    size: Any = abs(value)  # a whole number may be too large for a float
    if size <= float(np.finfo(float).max):
        return float(value)
    if finite:
        raise SchemaError(f"{what} is not finite")
    return math.nan


def _whole(value: Any, what: str, low: int = 0, high: int = 2**63 - 1) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        _wrong(what, value)
    if not low <= value <= high:
        bounds = f"at least {low}" if high == 2**63 - 1 else f"from {low} to {high}"
        raise SchemaError(f"{what} is {shortened(value)}, which must be {bounds}")
    return int(value)


def _array(value: Any, what: str, shape: tuple[int | None, ...], kinds: str = "f", finite: bool = True) -> Any:
    """Numbers of some kinds, of a shape whose length is given where it is known."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        _wrong(what, value)
    if len(shape) != value.ndim or any(n not in (None, m) for n, m in zip(shape, value.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise SchemaError(f"{what} has shape {value.shape}, but ({wanted}) is needed")
    if finite and not np.isfinite(value).all():
        raise SchemaError(f"{what} holds numbers that are not finite")
    return value


def _shares(value: Any, what: str, p: int) -> None:
    """A probability or a share for every column."""
    _array(value, what, (p,))
    if (value < 0).any() or (value > 1 + 1e-9).any():  # a sum of weights may round up
        raise SchemaError(f"{what} holds shares outside of 0 to 1")


def _same_names(what: str, found: Mapping[str, Any], needed: tuple[str, ...], allowed: tuple[str, ...] = ()) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise SchemaError(f"{what} lacks {', '.join(missing)}")
    extra = [name for name in found if name not in (*needed, *allowed)]
    if extra:
        raise SchemaError(f"{what} holds {quoted(extra[0])}, which this version does not know")


# The parts of a model


def _columns(text: str, target: str) -> list[dict[str, Any]]:
    columns = _listing(_parsed(text, MOST_COLUMN_STRUCTURE), "columns")
    for column in columns:
        _check_column(column)
    names = {column["name"] for column in columns}
    if not columns or len(names) < len(columns) or target in names:
        raise SchemaError("its columns are missing or repeated")
    return columns


def _check_column(column: Any) -> None:
    _same_names("a column", _mapping(column, "a column"), ("name",), COLUMN_KEYS)
    _text(column["name"], "the name of a column")
    if "categories" in column:
        categories = [_text(value, "a category") for value in _listing(column["categories"], "categories")]
        if not categories or len(set(categories)) < len(categories):
            raise SchemaError(f"the categories of column {quoted(column['name'])} are missing or repeated")
    _check_kind(column)


def _check_kind(column: dict[str, Any]) -> None:
    """How a column becomes numbers; see the module `columns`."""
    for key, choices in (("decimal", (".", ",")), ("date", ("ymd", "dmy", "mdy")), ("unit", ())):
        if key in column:
            _text(column[key], key, choices)
    for key in ("ordinal", "indicator"):
        if key in column and column[key] is not True:
            _wrong(key, column[key])
    if "ordinal" in column and "categories" not in column:
        raise SchemaError(f"column {quoted(column['name'])} has an order, but no categories")
    means = [_number(mean, "a mean") for mean in _listing(column.get("means", []), "means")]
    plain = {key: value for key, value in column.items() if key != "indicator"}
    if ("means" in column or "indicator" in column) and len(means) != len(labels(plain)):
        raise SchemaError(f"column {quoted(column['name'])} does not have a mean for each of its numbers")


def _count_encoded(columns: list[dict[str, Any]]) -> int:
    return sum(len(labels(column)) for column in columns)


def _check_residuals(residuals: Any) -> None:
    _array(residuals, "residuals", (None,))
    if (residuals < 0).any() or (np.diff(residuals) < 0).any():
        raise SchemaError("residuals are not the sorted sizes of errors of its rows")


def _n_given(state: dict[str, Any]) -> int:
    design = state[PRIVATE]["design"]
    return int(design["n_rows"] if design.get("n_given") is None else design["n_given"])


def _check_ensemble(ensemble: str, state: dict[str, Any], p: int, parameters: Mapping[str, Any]) -> None:
    for name, value in state.items():
        fitted = name.endswith("_") and not name.startswith("_") and name not in OWN_NAMES
        if name != PRIVATE and name not in parameters and not fitted:
            raise SchemaError(f"the model holds {quoted(name)}, which no model has")
        if name in parameters:
            _check_parameter(name, value)
    needed = ("n_features_in_", "coef_", "intercept_", "n_estimators_", "scale_", "weights_", "inclusion_", PRIVATE)
    _same_names("the model", {name: state[name] for name in needed if name in state}, needed)
    _check_fitted(_mapping(state[PRIVATE], "what was fitted"), p)
    _check_coefficients(state, p)
    _check_members(state, p)
    if ensemble.endswith("CV"):
        _check_tuning(state, p)


def _check_parameter(name: str, value: Any) -> None:
    """Parameters have no part in predictions: whatever a fit takes that is plain may stand here."""
    if isinstance(value, np.ndarray):
        _array(value, name, (None,), "iuf")
    elif isinstance(value, list):
        for part in value:
            _number(part, name)
    elif isinstance(value, str):
        _text(value, name)
    elif value is not None and not isinstance(value, (bool, np.bool_)):
        _number(value, name, finite=name != "n_estimators")


def _check_coefficients(state: dict[str, Any], p: int) -> None:
    _whole(state["n_features_in_"], "n_features_in_", p, p)
    one = isinstance(state["coef_"], np.ndarray) and state["coef_"].ndim == 2  # one target in a table of targets
    _array(state["coef_"], "coef_", (1, p) if one else (p,))
    if one and isinstance(state["intercept_"], np.ndarray):
        _array(state["intercept_"], "intercept_", (1,))
    else:
        _number(state["intercept_"], "intercept_")


def _check_members(state: dict[str, Any], p: int) -> None:
    endless = state["n_estimators_"] == np.inf  # the limit of many members: none of them has a weight
    k = 0 if endless else _whole(state["n_estimators_"], "n_estimators_", 1)
    _array(state["weights_"], "weights_", (k,))
    _shares(state["inclusion_"], "inclusion_", p)
    _number(state["scale_"], "scale_")
    if state.get("stacking_advantage_") is not None:
        _number(state["stacking_advantage_"], "stacking_advantage_", finite=False)
    _whole(state.get("n_fallbacks_", 0), "n_fallbacks_")
    _text(state.get("solver_", ""), "solver_")


def _check_tuning(state: dict[str, Any], p: int) -> None:
    needed = ("max_features_", "max_samples_", "feature_ratio_", "best_score_", "best_index_", "cv_results_",
              "criterion_", "inclusion_kind_", "inclusion_shares_", "selected_", "selection_frequency_",
              "loo_prediction_")  # fmt: skip
    _same_names("the model", {name: state[name] for name in needed if name in state}, needed)
    _whole(state["max_features_"], "max_features_", 1, p)
    _whole(state["max_samples_"], "max_samples_", 1, _n_given(state))
    _number(state["feature_ratio_"], "feature_ratio_")
    _number(state["best_score_"], "best_score_", finite=False)
    for name in ("criterion_", "inclusion_kind_"):
        _text(state[name], name)
    results = _mapping(state["cv_results_"], "cv_results_")
    n_sizes = len(_array(results.get("size"), "cv_results_['size']", (None,), "iu"))
    for name, values in results.items():
        _array(values, f"cv_results_[{quoted(name)}]", (n_sizes,), "b" if name == "mixture" else "iuf", finite=False)
    _whole(state["best_index_"], "best_index_", 0, n_sizes - 1)
    shares = state["inclusion_shares_"]
    one = isinstance(shares, list) and len(shares) == 1  # one target in a table of targets
    for name, share in _mapping(shares[0] if one else shares, "inclusion_shares_").items():
        _number(share, f"inclusion_shares_[{quoted(name)}]")
    for name, kinds in {"selected_": "b", "selection_frequency_": "f"}.items():
        found = _array(state[name], name, (1, None) if one else (None,), kinds)
        if found.size not in (0, p):
            raise SchemaError(f"{name} has {found.size} entries, but the model has {p} columns")
    left_out = state["loo_prediction_"]
    table = isinstance(left_out, np.ndarray) and left_out.ndim == 2
    loo = _array(left_out, "loo_prediction_", (None, 1) if table else (None,), finite=False)
    if len(loo) not in (0, _n_given(state)):
        raise SchemaError(f"loo_prediction_ has {len(loo)} rows, but the model saw {_n_given(state)}")


def _check_fitted(fitted: dict[str, Any], p: int) -> None:
    needed = ("design", "designs", "scale", "curve", "stream", "distinct", "members", "rows", "why_no_rows", "splits",
              "n_groups", "folds")  # fmt: skip
    _same_names("the model", fitted, needed)
    _number(fitted["scale"], "scale")
    _text(fitted["why_no_rows"], "why_no_rows")
    designs = [fitted["design"], *(_listing(fitted["designs"], "designs") if fitted["designs"] is not None else [])]
    for design in designs:
        _check_design(_mapping(design, "design"), p)
    n = int(fitted["design"]["n_rows"])
    if fitted["members"] is not None:
        _check_mean(_mapping(fitted["members"], "members"), p)
    if fitted["rows"] is not None:
        _check_rows(_mapping(fitted["rows"], "rows"), n, p)
    _check_folds(fitted, n, p)
    if fitted["curve"] is not None:
        _check_curve(_mapping(fitted["curve"], "curve"))
    if fitted["stream"] is not None:
        _check_stream(_mapping(fitted["stream"], "stream"), p)
        digests = [_text(digest, "distinct") for digest in _listing(fitted["distinct"], "distinct")]
        if not all(re.fullmatch(r"(?:[0-9a-f]{2}){1,64}", digest) for digest in digests):
            raise SchemaError("distinct does not hold digests of rows")
    elif fitted["distinct"] is not None:
        _wrong("distinct", fitted["distinct"])


def _check_mean(members: dict[str, Any], p: int) -> None:
    """The mean of the members: a file holds one target."""
    names = ("coef", "intercept", "mean_y", "counts", "weights", "solver", "n_fallbacks")
    _same_names("members", members, names)
    _array(members["coef"], "coef", (p, 1))
    for name in ("intercept", "mean_y"):
        _array(members[name], name, (1,))
    if len(_array(members["weights"], "weights", (None,))):
        _array(members["counts"], "counts", (p,), "iu")
    _text(members["solver"], "solver")
    _whole(members["n_fallbacks"], "n_fallbacks")


def _check_rows(rows: dict[str, Any], n: int, p: int) -> None:
    """Training rows, dense or sparse by columns."""
    dense = "X" in rows
    needed = ("Y", "n_given", "single_target", *(("X",) if dense else ("data", "indices", "indptr")))
    _same_names("rows", rows, needed, ("weight", "kept_rows"))
    _array(rows["Y"], "Y", (n, 1))
    n_given = _whole(rows["n_given"], "n_given", n)
    if not isinstance(rows["single_target"], (bool, np.bool_)):
        _wrong("single_target", rows["single_target"])
    if dense:
        _array(rows["X"], "X", (n, p))
    else:
        starts = _array(rows["indptr"], "indptr", (p + 1,), "iu")
        count = len(_array(rows["data"], "data", (None,)))
        places = _array(rows["indices"], "indices", (count,), "iu")
        if starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any():
            raise SchemaError("indptr does not divide the entries of the rows")
        if count and (places.min() < 0 or places.max() >= n):
            raise SchemaError("indices hold numbers of rows that are not there")
    if "weight" in rows and (_array(rows["weight"], "weight", (n,)) <= 0).any():
        raise SchemaError("weights are not positive")
    if "kept_rows" in rows:
        kept = _array(rows["kept_rows"], "kept_rows", (n,), "iu")
        if (kept < 0).any() or (kept >= n_given).any():
            raise SchemaError("kept_rows holds numbers of rows that the model never saw")


def _check_folds(fitted: dict[str, Any], n: int, p: int) -> None:
    """Rows to train and to test on, and fits without each fold."""
    if fitted["splits"] is not None:
        splits = _mapping(fitted["splits"], "splits")
        _same_names("splits", splits, ("rows", "counts"))
        rows, counts = (_array(splits[name], f"splits[{name!r}]", (None,), "iu") for name in ("rows", "counts"))
        if not len(counts) or len(counts) % 2 or (counts < 0).any() or int(counts.sum()) != len(rows):
            raise SchemaError("splits are not rows to train and to test on by turns")
        if len(rows) and (rows.min() < 0 or rows.max() >= n):
            raise SchemaError("splits hold rows that are not there")
    if fitted["n_groups"] is not None:
        _whole(fitted["n_groups"], "n_groups", 1)
    if fitted["folds"] is None:
        return
    folds = _mapping(fitted["folds"], "folds")
    _same_names("folds", folds, ("coef", "intercept", "residual", "counts"))
    count = len(_array(folds["coef"], "coef", (None, p)))
    _array(folds["intercept"], "intercept", (count, 1))
    counts = _array(folds["counts"], "counts", (count,), "iu")
    left = 0 if folds["residual"] is None else len(_array(folds["residual"], "residual", (None, 1)))
    if not count or (counts < 0).any() or int(counts.sum()) != left:
        raise SchemaError("the residuals of its folds are not those of its rows")


def _fields_of(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields of a dataclass: those that must be given, and all others."""
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    return tuple(needed), tuple(field.name for field in fields(kind) if field.name not in needed)


def _check_design(design: dict[str, Any], p: int) -> None:
    _same_names("design", design, *_fields_of(Design))
    n_rows = _whole(design["n_rows"], "n_rows", 1)
    _whole(design["n_columns"], "n_columns", p, p)
    _whole(design["seed"], "seed", high=2**128)
    _check_laws(design, p)
    _size(design.get("max_samples", 1.0), "max_samples")
    _text(design.get("sampling", "fixed"), "sampling", SAMPLINGS)
    _text(design.get("kind", "balanced"), "design", KINDS)
    if not isinstance(design.get("fit_intercept", True), (bool, np.bool_)):
        _wrong("fit_intercept", design["fit_intercept"])
    for name, low in (("distinct_rows", 0), ("row_groups", 1), ("n_given", n_rows)):
        if design.get(name) is not None:
            _whole(design[name], name, low)
    drawn = design.get("sampling") == "determinantal" and design.get("shares") is None
    if drawn and design.get("process") is None:
        raise SchemaError("sampling and process do not go together")
    if design.get("process") is not None:
        _check_process(design["process"], p)
    kept = design.get("kept_rows")
    if kept is not None:
        _array(kept, "kept_rows", (n_rows,), "iu")
        if (kept < 0).any() or (kept >= (design.get("n_given") or n_rows)).any():
            raise SchemaError("kept_rows holds numbers of rows that the model never saw")


def _check_process(processes: Any, p: int) -> None:
    for process in _listing(processes, "process"):
        _same_names("process", _mapping(process, "process"), ("values", "penalty", "spreads", "eigenvectors"))
        rank = _array(process["eigenvectors"], "eigenvectors", (p, None)).shape[1]
        for name, length in (("values", rank), ("spreads", p)):
            if (_array(process[name], name, (length,)) < 0).any():
                raise SchemaError(f"{name} are negative")
        if _number(process["penalty"], "penalty") <= 0:
            raise SchemaError("penalty is not positive")


def _check_laws(design: dict[str, Any], p: int) -> None:
    """A size or the probabilities of one law, or determinantal laws that have shares of the members."""
    _size(design["max_features"], "max_features", p)
    if design.get("shares") is None:
        if design.get("spreads") is not None or design.get("penalties") is not None:
            raise SchemaError("spreads and penalties belong to laws that have shares")
        return
    count = len(_array(design.get("spreads"), "spreads", (None, p)))
    if (design["spreads"] < 0).any() or (_array(design.get("penalties"), "penalties", (count,)) < 0).any():
        raise SchemaError("spreads or penalties are negative")
    shares = _array(design["shares"], "shares", (None,))
    _shares(shares, "shares", len(shares))
    if len(shares) not in (count, count + 1) or abs(float(shares.sum()) - 1) > 1e-9:
        raise SchemaError("shares do not belong to the laws there are")


def _size(value: Any, what: str, p: int | None = None) -> None:
    """A count, a fraction, or where p is given, a probability for each of p columns."""
    if p is not None and isinstance(value, np.ndarray):
        _shares(value, what, p)
    elif _number(value, what) <= 0:
        raise SchemaError(f"{what} is not positive")


def _check_curve(curve: dict[str, Any]) -> None:
    _same_names("curve", curve, *_fields_of(SizeCurve))
    sizes = _array(curve["sizes"], "sizes", (None,), "iu")
    n_items = _whole(curve["n_items"], "n_items", 1)
    _text(curve["design"], "design", KINDS)
    if not len(sizes) or (sizes < 1).any() or (sizes > n_items).any():
        raise SchemaError(f"sizes are not between 1 and {n_items}")
    for name in CURVES:
        _array(curve[name], name, (len(sizes),), finite=False)


def _check_stream(stream: dict[str, Any], p: int) -> None:
    _same_names("stream", stream, *_fields_of(Triangle))
    _whole(stream["n_rows"], "n_rows")
    _whole(stream["n_targets"], "n_targets", 1, 1)
    _array(stream["shift"], "shift", (p + 1,))
    _array(stream["R"], "R", (None, p + 2))
