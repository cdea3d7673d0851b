"""Models as files: fitted ensembles, and pipelines that end with one, written and read by skops.

A file from an unknown source can at worst hold a wrong model. Before skops builds anything, the
archive must be uncompressed (unpacked no larger than the file; `MAX_...` and `MIN_...` bound the
rest), and every node of its description must be a pair of a loader and a type in `BUILT`. Types
alone are not enough: a list node calls its type with a list, and ``numpy.ndarray([64])`` is an
array of whatever lay in memory. The content of each node must have the form in which skops writes
it, and every array as many bytes as its part of the archive.
"""

from __future__ import annotations

import copy
import io
import json
import math
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from . import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    __version__,
)
from ._execution import from_extra, messages
from ._execution.files import atomically

SUFFIX = ".skops"
FORMAT = "olsen model 2"
NEVER_RELEASED = "olsen model 1"
SCHEMA = "schema.json"
MAX_ARCHIVE_ENTRIES = 1000  # a model has some forty arrays, whatever its size
MAX_SCHEMA_BYTES = 1 << 26  # enough for the names of some forty thousand columns
# Bytes of the description that each list or dict, and each of the two quotes of a string, must have
# on average: a bare "[]" and "ab" take fifty bytes in memory.
MIN_BYTES_PER_BRACKET = 16
MIN_BYTES_PER_QUOTE = 5
# Bytes of the description per node. skops takes up to 1.6 kB of memory per node, with a list of
# types, and 3 kB per object.
MIN_BYTES_PER_NODE = 100
MIN_BYTES_PER_OBJECT = 300
CENTRAL_ENTRY = b"PK\x01\x02"  # begins every entry of a zip archive's table of contents
MAX_NAME_CHARACTERS = 200

ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)
NUMBERS = {f"numpy.{name}" for name in ("float64", "float32", "int64", "int32", "bool")}
KEYS = {"builtins.str", "builtins.int", "builtins.float", *NUMBERS} - {
    "numpy.bool"
}  # bool("False") is True
# Types that each loader of skops may build. Whatever a file combines from this list is inert: none
# of the types that a loader calls takes its size from a number, and types stored as values only
# convert numbers and strings.
BUILT = {
    "DictNode": {"builtins.dict"},
    "ListNode": {"builtins.list"},
    "TupleNode": {"builtins.tuple"},
    "JsonNode": {"builtins.str"},
    "SliceNode": {"builtins.slice"},
    "DTypeNode": {"numpy.dtype"},
    "NdArrayNode": {"numpy.ndarray", *NUMBERS},
    "TypeNode": {*KEYS, *NUMBERS, "builtins.bool", "builtins.object", "numpy.object_"},
    "ObjectNode": {
        *(
            "olsen.OLSEnsembleRegressor",
            "olsen.OLSEnsembleRegressorCV",
            "olsen.AdaptiveOLSEnsembleRegressor",
        ),
        "olsen.TableColumns",
        "sklearn.pipeline.Pipeline",
        *(
            f"sklearn.compose._column_transformer.{name}"
            for name in ("ColumnTransformer", "make_column_selector")
        ),
        *(f"sklearn.impute._base.{name}" for name in ("SimpleImputer", "MissingIndicator")),
        *(
            f"sklearn.preprocessing._encoders.{name}"
            for name in ("OneHotEncoder", "OrdinalEncoder")
        ),
        "sklearn.preprocessing._data.StandardScaler",
        # in ColumnTransformer, without a function
        "sklearn.preprocessing._function_transformer.FunctionTransformer",
    },
}
TRUSTED = set().union(*BUILT.values())
# kinds of NumPy types that arrays may have: numbers, strings and dates, no objects or records
ARRAY_KINDS = "biufSUmM"


class ModelFileError(ValueError):
    """Error for a file that is not a model, or not a usable one."""


def save(model: Any, path: str | os.PathLike[str], *, intervals: bool = True) -> None:
    """Write a fitted ensemble, or a pipeline that ends with one, to a model file.

    :func:`load` reads the file. It holds plain numbers and strings; nothing in it is executed when it is read.

    Parameters
    ----------
    model : OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor or Pipeline
        Fitted, with one target. Before the ensemble a pipeline may have ColumnTransformer,
        OneHotEncoder, OrdinalEncoder, SimpleImputer, StandardScaler and nested pipelines; anything
        else is refused. Parameters of the ensemble that are objects, such as splitters and random
        states, are not stored, nor is the `memory` of the pipeline: predictions do not depend on
        any of this.
    path : path
        Name of the file, which must end with ``.skops``. An existing file is replaced once the new
        one is complete.
    intervals : bool, default=True
        Whether to store the training rows, from which standard errors and most intervals are
        computed: 8 bytes for each row and column, up to 64 MiB (the model's `keep_rows`). Intervals
        of AdaptiveOLSEnsembleRegressor do not need the rows, unless it was fitted from blocks, a
        cluster or a device; intervals of the other models do.

    See Also
    --------
    load : Read such a file.

    Examples
    --------
    >>> import olsen, tempfile, os
    >>> from olsen.datasets import load_soil_carbon
    >>> X, y = load_soil_carbon(return_X_y=True)
    >>> model = olsen.OLSEnsembleRegressor(50, max_features=20, random_state=0).fit(X[:, ::10], y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "carbon.skops")
    ...     olsen.save(model, path)
    ...     again = olsen.load(path)
    >>> bool(np.allclose(again.predict(X[:, ::10]), model.predict(X[:, ::10])))
    True
    """
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise ValueError(f"path={str(path)!r} must end with {SUFFIX}, the suffix of model files.")
    ensemble = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if type(ensemble) not in ENSEMBLES:
        raise _refused(type(ensemble).__name__)
    check_is_fitted(model)
    if ensemble.coef_.ndim == 2 and len(ensemble.coef_) != 1:
        raise ValueError(
            f"the model has {len(ensemble.coef_)} targets, but a model file holds one. Fit and save"
            " a model for each."
        )
    write(path, model, intervals)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file of the command line, or of :func:`save`, as a fitted estimator.

    Parameters
    ----------
    path : path
        A file written by ``olsen fit --out`` or :func:`save`. Only listed types are built, each in
        one way: a file from an unknown source can at worst hold a wrong model.

    Returns
    -------
    model : Pipeline, OLSEnsembleRegressor, OLSEnsembleRegressorCV or AdaptiveOLSEnsembleRegressor
        What was saved. A model of the command is a pipeline of a ColumnTransformer, which takes
        data frames with the columns of the table that was fitted, and the ensemble; the name of its
        target is in ``target_name_``.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import olsen, tempfile, os
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> model = olsen.OLSEnsembleRegressor(10, max_features=1, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     olsen.save(model, os.path.join(folder, "m.skops"))
    ...     olsen.load(os.path.join(folder, "m.skops"))
    OLSEnsembleRegressor(max_features=1, n_estimators=10, random_state=0)
    """
    return read(path)["model"]


def write(path: Path, model: Any, rows: bool) -> None:
    """Write a model, with its training rows if `rows`; raise if it could not be read again."""
    if isinstance(model, Pipeline):
        stored = copy.copy(model)
        stored.memory = (
            None  # a folder of pickles, which must not be read on behalf of a model file
        )
        stored.steps = [*model.steps[:-1], (model.steps[-1][0], model[-1]._for_file(rows))]
    else:
        stored = model._for_file(rows)
    versions = {"format": FORMAT, "olsen": __version__, "sklearn": sklearn.__version__}
    dumped = load_skops().dumps({**versions, "model": stored})
    with zipfile.ZipFile(io.BytesIO(dumped)) as archive:
        schema = json.loads(archive.read(SCHEMA))
        if foreign := _foreign_types(schema):
            raise _refused(", ".join(sorted(foreign)))
        _Description(archive).number_of(schema)
    _check_parts(stored)
    atomically(path, lambda file: file.write_bytes(dumped))


def load_skops() -> Any:
    """Import skops.io without torch and Dask, which it would import while it lists scikit-learn's
    estimators.
    """
    wrappers = [f"sklearn.externals.array_api_compat.{library}" for library in ("torch", "dask")]
    hidden = {
        name: None for name in wrappers if name not in sys.modules and "skops.io" not in sys.modules
    }
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None: not to be imported
    try:
        return from_extra("skops.io", "cli", "A model file")
    finally:
        for name in hidden:
            del sys.modules[name]


def _refused(types: str) -> TypeError:
    return TypeError(
        f"a model file cannot hold {types}: it holds one of the three ensembles of olsen, alone or"
        " at the end of a Pipeline of ColumnTransformer, OneHotEncoder, OrdinalEncoder,"
        " SimpleImputer, StandardScaler and nested Pipelines. Keep other models with joblib or"
        " skops, which open in Python alone."
    )


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a model and the versions that wrote it; the file is checked before anything is built
    from it.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {str(path)[:MAX_NAME_CHARACTERS]}.")
    name = path.name[:MAX_NAME_CHARACTERS]
    loads = load_skops().loads
    data = path.read_bytes()
    with damaged_model(name), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", InconsistentVersionWarning
        )  # another patch version is fine; see below
        _check(data, name)
        content: dict[str, Any] = loads(data, trusted=sorted(TRUSTED))
        sklearn_version = str(content["sklearn"])
        _check_parts(content["model"])
        _check_values(content["model"])
    if sklearn_version.split(".")[:2] != sklearn.__version__.split(".")[:2]:
        messages.warn(
            f"{name} was written with scikit-learn {sklearn_version}, and this is"
            f" {sklearn.__version__}: transformers of other versions may not work, or not alike."
        )
    return content


@contextmanager
def damaged_model(name: str, *passing: type[Exception]) -> Iterator[None]:
    """Turn any error that a damaged model raises into a ModelFileError, except for errors of type
    `passing`.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (ModelFileError, *passing)):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_NAME_CHARACTERS]
        raise ModelFileError(
            f"{name} is damaged, or not a model written by olsen ({reason})."
        ) from error


def _check(data: bytes, name: str) -> None:
    """Raise for an archive that could fill the memory, another format, and nodes that skops would
    not have written.

    skops stores its parts uncompressed: no part of an archive is larger than the file. Its
    description is plain ASCII.
    """
    if data.count(CENTRAL_ENTRY) > MAX_ARCHIVE_ENTRIES:
        raise ValueError(f"more than {MAX_ARCHIVE_ENTRIES} parts")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        sizes = {entry.filename: entry.file_size for entry in entries}
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if (
            packed
            or len(sizes) < len(entries)
            or sum(entry.file_size for entry in entries) > len(data)
        ):
            raise ValueError("parts are compressed, larger than the file, or have the same name")
        text = archive.read(SCHEMA) if sizes[SCHEMA] <= MAX_SCHEMA_BYTES else b"["
        bytes_for_brackets = MIN_BYTES_PER_BRACKET * (text.count(b"[") + text.count(b"{"))
        bytes_for_quotes = MIN_BYTES_PER_QUOTE * text.count(b'"')
        if max(bytes_for_brackets, bytes_for_quotes) > len(text) or not text.isascii():
            raise ValueError(
                f"its description has more than {MAX_SCHEMA_BYTES} bytes, or is nothing but"
                " brackets"
            )
        schema = json.loads(text)
        file_format = str(json.loads(schema["content"]["format"]["content"]))
        if file_format == NEVER_RELEASED:
            raise ModelFileError(
                f"{name} is {file_format!r}, which was never released and which olsen {__version__}"
                " does not read: fit the model again."
            )
        if file_format != FORMAT:
            version = str(json.loads(schema["content"]["olsen"]["content"]))
            raise ModelFileError(
                f"{name} is {file_format[:40]!r}, and olsen {__version__} reads {FORMAT!r}. Install"
                f" the version that wrote it: pip install 'olsen>={version[:20]}'"
            )
        if foreign := _foreign_types(schema):
            named = ", ".join(kind[:100] for kind in sorted(foreign)[:5])
            raise ModelFileError(f"{name} asks for types that are not trusted: {named}.")
        description = _Description(archive)
        description.number_of(schema)
        if description.min_bytes > len(text):
            raise ValueError(f"its description has more nodes than {len(text)} bytes can hold")


def _foreign_types(schema: Any) -> set[str]:
    """Types in a description that its loaders must not build; types that another loader may build,
    with the loader.
    """
    foreign = set()
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (dict, list)):
            nodes += node.values() if isinstance(node, dict) else node
        if not isinstance(node, dict) or "__loader__" not in node:
            continue
        kind = f"{node.get('__module__')}.{node.get('__class__')}"
        if kind not in BUILT.get(str(node["__loader__"]), ()):
            foreign.add(f"{kind} in a {str(node['__loader__'])[:30]}" if kind in TRUSTED else kind)
    return foreign


class _Description:
    """The nodes of a description, compared with the form in which skops writes them.

    skops builds the first of the nodes with the same ``__id__``, and uses it for all others,
    whatever their content. So nodes with the same ``__id__`` must have the same content, or a short
    description could repeat a large object.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.unread = {entry.filename: entry for entry in archive.infolist()}
        self.min_bytes = (
            0  # length of the shortest description that skops writes for the nodes seen so far
        )
        self.numbers: dict[Any, int] = {}  # number of each distinct (loader, type, content)
        self.number_by_id: dict[int, int] = {}

    def number_of(self, node: Any) -> int:
        """Number of a node's content, equal for nodes of equal content; raise for nodes that skops
        does not write.
        """
        loader = node["__loader__"]
        kind = f"{node['__module__']}.{node['__class__']}"
        self.min_bytes += MIN_BYTES_PER_OBJECT if loader == "ObjectNode" else MIN_BYTES_PER_NODE
        content: Any = None
        if loader in ("ListNode", "TupleNode"):
            content = tuple(map(self.number_of, _of_type(list, node["content"])))
        elif loader == "DictNode":
            content = self._dict(node)
        elif loader == "JsonNode":
            content = _of_type(str, node["content"])
            _require(
                content.strip()[:1] not in ("", "[", "{"), "a text or a number holds more than one"
            )
        elif loader == "SliceNode":
            content = tuple(node["content"][end] for end in ("start", "stop", "step"))
            plain_ends = {type(end) for end in content} <= {int, str, type(None)}
            _require(plain_ends, "the ends of a slice are neither numbers nor names")
        elif loader == "DTypeNode":
            _require(
                _is_node(node["content"], "NdArrayNode", "numpy.ndarray"),
                "a type is not that of an array",
            )
            content = self.number_of(node["content"])
        elif loader == "ObjectNode":
            _require(
                _is_node(node["content"], "DictNode", "builtins.dict"), "attributes are not named"
            )
            content = self.number_of(node["content"])
        elif loader == "NdArrayNode":
            content = (
                self._numbers_in(node, kind)
                if node["type"] == "numpy"
                else self._objects_in(node, kind)
            )
        elif loader != "TypeNode":
            raise ValueError(f"a loader {loader!r}")
        number = self.numbers.setdefault((loader, kind, content), len(self.numbers))
        if "__id__" in node:
            first_number = self.number_by_id.setdefault(_of_type(int, node["__id__"]), number)
            _require(first_number == number, "nodes of the same object differ")
        return number

    def _dict(self, node: Any) -> Any:
        items = _of_type(dict, node["content"])
        key_types = node["key_types"]
        _require(_is_node(key_types, "ListNode", "builtins.list"), "types of keys are not listed")
        _require(
            len(_of_type(list, key_types["content"])) == len(items), "keys of a dict have no types"
        )
        plain_keys = all(_is_node(key, "TypeNode", *KEYS) for key in key_types["content"])
        _require(plain_keys, "keys are not numbers or strings")
        return self.number_of(key_types), tuple(items), tuple(map(self.number_of, items.values()))

    def _numbers_in(self, node: Any, kind: str) -> Any:
        """An array that is a part of the archive: it must have as many bytes as its header says."""
        name = _of_type(str, node["file"])
        if "__id__" in node and node["__id__"] in self.number_by_id:
            entry = self.archive.getinfo(name)  # skops does not read it a second time
        else:
            entry = self.unread.pop(
                name
            )  # a KeyError means that the part is missing, or read more than once
        with self.archive.open(entry) as part:
            _require(np.lib.format.read_magic(part) == (1, 0), "an array of another format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(part)
            n_bytes = entry.file_size - part.tell()
        _require(dtype.kind in ARRAY_KINDS and dtype.itemsize > 0, f"arrays of type {dtype}")
        _require(
            all(type(length) is int and length >= 0 for length in shape),
            f"an array of shape {shape}",
        )
        _require(
            math.prod(shape) * dtype.itemsize == n_bytes,
            f"an array of shape {shape} in {n_bytes} bytes",
        )
        if kind != "numpy.ndarray":
            _require(
                shape == () and f"numpy.{dtype.type.__name__}" == kind, f"an array as a {kind}"
            )
        return entry.CRC, entry.file_size

    def _objects_in(self, node: Any, kind: str) -> Any:
        """An array of strings and single numbers, as nested lists whose lengths must agree with its
        shape.
        """
        _require(
            node["type"] == "json" and kind == "numpy.ndarray",
            "an array that is neither a part nor a list",
        )
        _require(_is_node(node["shape"], "TupleNode", "builtins.tuple"), "an array without a shape")
        items = _of_type(list, node["content"])
        content = tuple(map(self.number_of, items))
        for axis, length in enumerate(node["shape"]["content"]):
            _require(_is_node(length, "JsonNode", "builtins.str"), "a length that is not a number")
            _require(
                all(_is_node(item, "ListNode", "builtins.list") for item in items) or axis == 0,
                "lists that end",
            )
            if axis:
                lengths = {len(item["content"]) for item in items}
                items = [inner for item in items for inner in item["content"]]
            else:
                lengths = {len(items)}
            _require(
                lengths <= {json.loads(length["content"])},
                "an array whose lists have other lengths",
            )
        scalar = [
            _is_node(item, "JsonNode", "builtins.str") or _is_node(item, "NdArrayNode", *NUMBERS)
            for item in items
        ]
        _require(all(scalar), "an array of objects")
        return self.number_of(node["shape"]), content


def _is_node(node: Any, loader: str, *kinds: str) -> bool:
    return bool(
        node["__loader__"] == loader and f"{node['__module__']}.{node['__class__']}" in kinds
    )


def _of_type(kind: type, value: Any) -> Any:
    _require(type(value) is kind, f"a {type(value).__name__} where a {kind.__name__} is written")
    return value


def _require(condition: bool, wrong: str) -> None:
    if not condition:
        raise ValueError(f"its description has {wrong}")


def _check_parts(model: Any) -> None:
    """Raise for estimators in a state that could make a later `fit` or `predict` unsafe."""
    values = [model]
    seen = set()
    while values:
        value = values.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (list, tuple)):
            values += value
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, (BaseEstimator, make_column_selector)):
            values += vars(value).values()
            _check_estimator(value)


def _check_estimator(estimator: Any) -> None:
    name = type(estimator).__name__
    methods = [key for key in vars(estimator) if callable(getattr(type(estimator), key, None))]
    if methods:
        raise ValueError(f"{methods[0]} of a {name} is a method, not a value")
    if isinstance(estimator, Pipeline) and estimator.memory is not None:
        raise ValueError(
            "a Pipeline has a memory, and would read pickles there when it is fitted again; set"
            " memory=None"
        )
    if isinstance(estimator, FunctionTransformer) and (
        estimator.func is not None or estimator.inverse_func is not None
    ):
        raise ValueError("a FunctionTransformer has a function")
    if isinstance(estimator, OneHotEncoder) and hasattr(estimator, "categories_"):  # it is fitted
        _check_codes(estimator)


def _check_codes(encoder: Any) -> None:
    """Raise for an encoder that would write out of the bounds of its columns.

    scikit-learn adds the codes of the categories to the first column of each feature and passes the
    sums to SciPy as indices of a sparse matrix; neither checks that the indices lie within the
    matrix.
    """
    categories = encoder.categories_
    infrequent = mappings = dropped = [None] * len(categories)
    if encoder._infrequent_enabled:
        infrequent = encoder._infrequent_indices
        mappings = encoder._default_to_infrequent_mappings
    if encoder._drop_idx_after_grouping is not None:
        dropped = encoder._drop_idx_after_grouping
    if type(encoder._n_features_outs) is not list:
        raise TypeError("columns of an encoder are not counted")
    features = zip(categories, infrequent, mappings, dropped, encoder._n_features_outs, strict=True)
    for values, rare, mapping, drop, n_columns in features:
        n_codes = len(values)
        if (
            values.dtype.kind not in "OSU"
        ):  # numeric categories are found by bisection; NaN is the last category
            numbers = values[:-1] if n_codes and values[-1] != values[-1] else values
            if not (numbers[1:] > numbers[:-1]).all():
                raise ValueError("categories are not sorted")
        if mapping is not None or rare is not None:
            if (
                sorted(set(mapping[rare].tolist())) != [mapping.max()]
                or len(mapping) != n_codes
                or rare.min() < 0
            ):
                raise ValueError("infrequent categories are not those of the encoder")
            if mapping.dtype.kind not in "iu" or mapping.min() < 0:
                raise ValueError("infrequent categories have no codes")
            n_codes = int(mapping.max()) + 1
        if drop is not None and not (isinstance(drop, Integral) and 0 <= drop < n_codes):
            raise ValueError("an encoder drops a category that it does not have")
        if type(n_columns) is not int or n_columns != n_codes - (drop is not None):
            raise ValueError(f"an encoder has {n_columns} columns for {n_codes} categories")


def _check_values(model: Any) -> None:
    """Raise for a model whose coefficients do not fit its columns; other defects surface in
    predictions.
    """
    ensemble = model[-1] if isinstance(model, Pipeline) else model
    if type(ensemble) not in ENSEMBLES:
        raise TypeError(f"a {type(ensemble).__name__} is not a model that can be saved")
    p = ensemble.n_features_in_
    coef = np.asarray(ensemble.coef_)
    intercept = np.asarray(ensemble.intercept_)
    if coef.dtype.kind != "f" or intercept.dtype.kind != "f":
        raise TypeError("coefficients are not floating-point numbers")
    if coef.shape not in ((p,), (1, p)) or intercept.size != 1:
        raise ValueError("coefficients are not those of its columns")
    if not all(np.isfinite(values.astype(float)).all() for values in (coef, intercept)):
        raise ValueError("coefficients are not finite")
    target = getattr(model, "target_name_", "")
    if target.encode() and target in model.feature_names_in_:
        raise ValueError("its target is one of its columns")
