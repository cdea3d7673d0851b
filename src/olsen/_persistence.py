"""Models as files: fitted ensembles, and pipelines that end with one, written and read by skops.

A file from an unknown source can at worst hold a wrong model. Before skops builds anything, the
archive must be uncompressed (unpacked no larger than the file; `_check` bounds the
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
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

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
SCHEMA = "schema.json"
CENTRAL_ENTRY = b"PK\x01\x02"  # begins every entry of a zip archive's table of contents
MAX_NAME_CHARACTERS = 200

ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)
NUMERIC_KEYS = {"numpy.float64", "numpy.float32", "numpy.int64", "numpy.int32"}
NUMBERS = {*NUMERIC_KEYS, "numpy.bool"}  # not a key: bool("False") is True
KEYS = {"builtins.str", "builtins.int", "builtins.float", *NUMERIC_KEYS}
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
        "olsen.OLSEnsembleRegressor",
        "olsen.OLSEnsembleRegressorCV",
        "olsen.AdaptiveOLSEnsembleRegressor",
        "olsen.TableEncoder",
        "sklearn.pipeline.Pipeline",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.impute._base.SimpleImputer",
        "sklearn.impute._base.MissingIndicator",
        "sklearn.preprocessing._encoders.OneHotEncoder",
        "sklearn.preprocessing._encoders.OrdinalEncoder",
        "sklearn.preprocessing._data.StandardScaler",
        # in ColumnTransformer, without a function
        "sklearn.preprocessing._function_transformer.FunctionTransformer",
    },
}
TRUSTED = set().union(*BUILT.values())


# yields nodes, is sent the number of each, and returns what identifies the content
Numbering = Generator[Any, Any, Any]


class ModelFileError(ValueError):
    """Error for a file that is not a model, or not a usable one."""


def save(model: Any, path: str | os.PathLike[str], *, intervals: bool = True) -> None:
    """Write a fitted ensemble, or a pipeline that ends with one, to a model file.

    :func:`load` reads the file. It holds plain numbers and strings; nothing in it is executed when it is read.

    Parameters
    ----------
    model : OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor or Pipeline
        Fitted, with one target. Before the ensemble a pipeline may have TableEncoder,
        ColumnTransformer, OneHotEncoder, OrdinalEncoder, SimpleImputer, StandardScaler and nested pipelines; anything
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
    >>> model = olsen.OLSEnsembleRegressor(50, max_features=20, random_state=0).fit(
    ...     X[:, ::10], y
    ... )
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
    ensemble = _ensemble_of(model)
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
        What was saved. A model of the command is a pipeline of a TableEncoder, which takes data
        frames with the columns of the table that was fitted, and the ensemble; the name of its
        target is in ``target_name_``.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import olsen, tempfile, os
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> model = olsen.OLSEnsembleRegressor(10, max_features=1, random_state=0).fit(
    ...     X, X[:, 0]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     olsen.save(model, os.path.join(folder, "m.skops"))
    ...     olsen.load(os.path.join(folder, "m.skops"))
    OLSEnsembleRegressor(max_features=1, n_estimators=10, random_state=0)
    """
    return read(path)["model"]


def write(path: Path, model: Any, rows: bool) -> None:
    """Write a model, with its training rows if `rows`; raise if it could not be read again."""
    ensemble = _ensemble_of(model)
    stored = ensemble._for_file(rows)
    if model is not ensemble:
        pipeline = copy.copy(model)
        pipeline.memory = None  # a folder of pickles, not to be read on behalf of a model file
        pipeline.steps = [*model.steps[:-1], (model.steps[-1][0], stored)]
        stored = pipeline
    versions = {"format": FORMAT, "olsen": __version__, "sklearn": sklearn.__version__}
    dumped = load_skops().dumps({**versions, "model": stored})
    with zipfile.ZipFile(io.BytesIO(dumped)) as archive:
        schema, foreign_types = _parsed(archive.read(SCHEMA))
        if foreign_types:
            raise _refused(", ".join(sorted(foreign_types)))
        _Description(archive).check(schema)
    _check_parts(stored)
    atomically(path, lambda file: file.write_bytes(dumped))


def load_skops() -> Any:
    """Import skops.io without torch and Dask, which it would import while it lists scikit-learn's
    estimators.
    """
    wrappers = {
        "sklearn.externals.array_api_compat.torch",
        "sklearn.externals.array_api_compat.dask",
    }
    hidden = dict.fromkeys(() if "skops.io" in sys.modules else wrappers - sys.modules.keys())
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None: not to be imported
    try:
        return from_extra("skops.io", "cli", "A model file")
    finally:
        for name in hidden:
            del sys.modules[name]


def _refused(types: str) -> TypeError:
    return TypeError(
        f"a model file cannot hold {types}: it holds one of the three ensembles of olsen, alone or"
        " at the end of a Pipeline of TableEncoder, ColumnTransformer, OneHotEncoder, OrdinalEncoder,"
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
def damaged_model(name: str, passing: type[Exception] = ModelFileError) -> Iterator[None]:
    """Turn any error that a damaged model raises into a ModelFileError, except for errors of type
    `passing`.
    """
    try:
        yield
    except (ModelFileError, passing):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_NAME_CHARACTERS]
        raise ModelFileError(
            f"{name} is damaged, or not a model written by olsen ({reason})."
        ) from error


def _check(data: bytes, name: str) -> None:
    """Raise for an archive that could fill the memory, another format, and nodes that skops would
    not have written.

    skops stores its parts uncompressed: no part of an archive is larger than the file.
    """
    if data.count(CENTRAL_ENTRY) > 1000:  # a model has some forty arrays, whatever its size
        raise ValueError("more than 1000 parts")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        sizes = {entry.filename: entry.file_size for entry in entries}
        stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        total_size = sum(entry.file_size for entry in entries)
        if not stored or len(sizes) < len(entries) or total_size > len(data):
            raise ValueError("parts are compressed, larger than the file, or have the same name")
        if sizes[SCHEMA] > 1 << 26:  # enough for the names of some forty thousand columns
            raise ValueError("its description has more than 64 MiB")
        text = archive.read(SCHEMA)
        _refuse_dense(text)
        schema, foreign_types = _parsed(text)
        _check_format(schema["content"], name)
        if foreign_types:
            listed = ", ".join(kind[:100] for kind in sorted(foreign_types)[:5])
            raise ModelFileError(f"{name} asks for types that are not trusted: {listed}.")
        description = _Description(archive)
        description.check(schema)
        if description.min_bytes > len(text):
            raise ValueError(f"its description has more nodes than {len(text)} bytes can hold")


def _refuse_dense(text: bytes) -> None:
    """Raise for a description that takes far more memory than bytes once it is parsed.

    skops writes plain ASCII, 16 bytes or more for each list or dict, and 5 or more for each of the
    two quotes of a string. A bare "[]" or "ab" takes fifty bytes in memory.
    """
    min_bytes = max(16 * (text.count(b"[") + text.count(b"{")), 5 * text.count(b'"'))
    if min_bytes > len(text) or not text.isascii():
        raise ValueError("its description is nothing but brackets and quotes, or is not ASCII")


def _parsed(text: bytes) -> tuple[Any, set[str]]:
    """Parse a description; also return the types that its loaders must not build.

    A type that another loader may build is returned with its loader.
    """
    foreign_types = set()

    def check_type(node: dict[str, Any]) -> dict[str, Any]:
        if "__loader__" in node:
            loader = str(node["__loader__"])
            kind = f"{node.get('__module__')}.{node.get('__class__')}"
            if kind not in BUILT.get(loader, ()):
                foreign_types.add(f"{kind} in a {loader[:30]}" if kind in TRUSTED else kind)
        return node

    return json.loads(text, object_hook=check_type), foreign_types


def _check_format(content: Any, name: str) -> None:
    """Raise for a file of another format, with the version of olsen that reads it."""
    file_format = str(json.loads(content["format"]["content"]))
    if file_format != FORMAT:
        version = str(json.loads(content["olsen"]["content"]))
        raise ModelFileError(
            f"{name} is {file_format[:40]!r}, and olsen {__version__} reads {FORMAT!r}. Install the"
            f" version that wrote it: pip install 'olsen>={version[:20]}'"
        )


class _Description:
    """The nodes of a description, compared with the form in which skops writes them.

    The types of all nodes were checked before. skops builds the first of the nodes with the same
    ``__id__``, and uses it for all others, whatever their content. So nodes with the same
    ``__id__`` must have the same content, or a short description could repeat a large object.
    Content of another type than below raises KeyError, TypeError or AttributeError here or in
    skops, and builds nothing.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.unread = {entry.filename: entry for entry in archive.infolist()}
        self.min_bytes = 0  # of the shortest description that has the nodes seen so far
        self.numbers: dict[Any, int] = {}  # number of each distinct (loader, type, content)
        self.number_by_id: dict[int, int] = {}

    def check(self, root: Any) -> None:
        """Raise for nodes that skops does not write, the root or any node inside it.

        Nodes lie in nodes: `number_of` yields those inside a node and is sent their numbers, so
        that a deep description needs no deep stack.
        """
        begun = [self.number_of(root)]
        number = None
        while begun:
            try:
                child = begun[-1].send(number)
            except StopIteration as finished:
                number = finished.value
                begun.pop()
            else:
                number = None
                begun.append(self.number_of(child))

    def number_of(self, node: Any) -> Numbering:
        """Number of a node's content, equal for nodes of equal content."""
        loader = node["__loader__"]
        # skops takes up to 3 kB of memory for an object and 1.6 kB for any other node, and writes
        # no shorter ones
        self.min_bytes += 300 if loader == "ObjectNode" else 100
        content = yield from self.CONTENT[loader](self, node)
        number = self.numbers.setdefault((loader, _kind(node), content), len(self.numbers))
        if "__id__" in node:
            identifier = node["__id__"]
            # skops builds nodes whose id is 0 or null again and again
            _require(type(identifier) is int and identifier > 0, "a node without a number")
            first_number = self.number_by_id.setdefault(identifier, number)
            _require(first_number == number, "nodes of the same object differ")
        return number

    def _child(self, node: Any) -> Numbering:
        return (yield node["content"])

    def _all(self, nodes: Iterable[Any]) -> Numbering:
        numbers = []
        for node in nodes:
            numbers.append((yield node))
        return tuple(numbers)

    def _sequence(self, node: Any) -> Numbering:
        return self._all(node["content"])

    def _dict(self, node: Any) -> Numbering:
        items = node["content"]
        keys = node["key_types"]["content"]
        plain = [key["__loader__"] == "TypeNode" and _kind(key) in KEYS for key in keys]
        _require(all(plain) and len(plain) == len(items), "keys that are not numbers or strings")
        values = yield from self._all(items.values())
        return (yield node["key_types"]), tuple(items), values

    def _text(self, node: Any) -> Numbering:
        yield from ()
        text: str = node["content"]
        _require(text.strip()[:1] not in ("", "[", "{"), "a string or a number that holds more")
        return text

    def _slice(self, node: Any) -> Numbering:
        yield from ()
        return tuple(node["content"][end] for end in ("start", "stop", "step"))

    def _type(self, node: Any) -> Numbering:
        yield from ()
        return None

    def _array(self, node: Any) -> Numbering:
        return {"numpy": self._numbers_in, "json": self._objects_in}[node["type"]](node)

    def _numbers_in(self, node: Any) -> Numbering:
        """An array that is a part of the archive: it must have as many bytes as its header says."""
        yield from ()
        name = node["file"]
        seen = node.get("__id__") in self.number_by_id  # then skops does not read it again
        # a KeyError means that the part is missing, or that another node has read it
        entry = self.archive.getinfo(name) if seen else self.unread.pop(name)
        with self.archive.open(entry) as part:
            _require(np.lib.format.read_magic(part) == (1, 0), "an array of another format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(part)
            n_bytes = entry.file_size - part.tell()
        # numbers, strings and dates; no objects or records
        _require(dtype.kind in "biufSUmM" and dtype.itemsize > 0, f"arrays of type {dtype}")
        fits = math.prod(shape) * dtype.itemsize == n_bytes
        _require(fits, f"an array of shape {shape} in {n_bytes} bytes")
        kind = _kind(node)
        scalar = shape == () and kind == f"numpy.{dtype.type.__name__}"
        _require(scalar or kind == "numpy.ndarray", f"an array as a {kind}")
        return entry.CRC, entry.file_size

    def _objects_in(self, node: Any) -> Numbering:
        """A vector of strings and single numbers, which skops stores as a list."""
        shape = [length["content"] for length in node["shape"]["content"]]
        vector = _kind(node) == "numpy.ndarray" and shape == [str(len(node["content"]))]
        scalars = all(
            item["__loader__"] == "JsonNode" or _kind(item) in NUMBERS for item in node["content"]
        )
        _require(vector and scalars, "objects that are not a vector of strings and numbers")
        shape_number = yield node["shape"]
        return shape_number, (yield from self._sequence(node))

    CONTENT: ClassVar[dict[str, Callable[[_Description, Any], Numbering]]] = {
        "ListNode": _sequence,
        "TupleNode": _sequence,
        "DictNode": _dict,
        "JsonNode": _text,
        "SliceNode": _slice,
        "DTypeNode": _child,
        "NdArrayNode": _array,
        "TypeNode": _type,
        "ObjectNode": _child,
    }


def _kind(node: Any) -> str:
    return f"{node['__module__']}.{node['__class__']}"


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
        match value:
            case list() | tuple():
                values += value
            case dict():
                values += value.values()
            case BaseEstimator() | make_column_selector():
                values += vars(value).values()
                _check_estimator(value)


def _check_estimator(estimator: Any) -> None:
    methods = [name for name in vars(estimator) if callable(getattr(type(estimator), name, None))]
    if methods:
        raise ValueError(f"{methods[0]} of a {type(estimator).__name__} is a method, not a value")
    # NumPy makes a record of "1,1,1", with three hundred times the memory of the string
    if "," in str(vars(estimator).get("dtype")):
        raise ValueError(f"the numbers of a {type(estimator).__name__} are records")
    match estimator:
        case Pipeline() if estimator.memory is not None:
            raise ValueError(
                "a Pipeline has a memory, and would read pickles there when it is fitted again;"
                " set memory=None"
            )
        case FunctionTransformer(func=None, inverse_func=None):
            pass
        case FunctionTransformer():
            raise ValueError("a FunctionTransformer has a function")
        case OneHotEncoder() if hasattr(estimator, "categories_"):  # it is fitted
            _check_codes(estimator)
        # its module needs pyarrow, and is loaded if there is such an object
        case BaseEstimator(columns_=_) if type(estimator).__name__ == "TableEncoder":
            estimator._columns()


def _check_codes(encoder: Any) -> None:
    """Raise for an encoder that would write out of the bounds of its columns.

    scikit-learn adds the codes of the categories to the first column of each feature and passes the
    sums to SciPy as indices of a sparse matrix; neither checks that the indices lie within the
    matrix.
    """
    absent: list[Any] = [None] * len(encoder.categories_)
    infrequent = mappings = dropped = absent
    if encoder._infrequent_enabled:
        infrequent = encoder._infrequent_indices
        mappings = encoder._default_to_infrequent_mappings
    if encoder._drop_idx_after_grouping is not None:
        dropped = encoder._drop_idx_after_grouping
    counts = encoder._n_features_outs
    features = zip(encoder.categories_, infrequent, mappings, dropped, counts, strict=True)
    for categories, rare, mapping, drop, n_columns in features:
        n_categories = len(categories)
        if categories.dtype.kind not in "OSU":  # numeric categories are found by bisection
            ascending = np.array_equal(categories, np.unique(categories), equal_nan=True)
            _require(ascending, "categories that are not sorted")
        codes = np.arange(n_categories) if mapping is None else mapping
        n_codes = int(codes.max(initial=-1)) + 1
        valid = (
            len(codes) == n_categories
            and _are_indices(codes, n_categories)
            and (rare is None or _are_indices(rare, n_categories))
            and (drop is None or _are_indices(drop, n_codes))
            and type(n_columns) is int
            and n_columns == n_codes - (drop is not None)
        )
        _require(valid, f"an encoder with {n_columns} columns for {n_categories} categories")


def _are_indices(values: Any, length: int) -> bool:
    return set(np.ravel(values).tolist()) <= set(range(length))


def _check_values(model: Any) -> None:
    """Raise for a model whose coefficients do not fit its columns; other defects surface in
    predictions.
    """
    ensemble = _ensemble_of(model)
    if type(ensemble) not in ENSEMBLES:
        raise TypeError(f"a {type(ensemble).__name__} is not a model that can be saved")
    p = ensemble.n_features_in_
    coef = np.asarray(ensemble.coef_)
    intercept = np.asarray(ensemble.intercept_)
    if coef.shape not in ((p,), (1, p)) or intercept.size != 1:
        raise ValueError("coefficients are not those of its columns")
    for numbers in (coef, intercept):
        if numbers.dtype.kind != "f" or not np.isfinite(numbers).all():
            raise ValueError("coefficients are not finite floating-point numbers")
    first: Any = None
    if isinstance(model, Pipeline) and len(model.steps) == 2:
        first = model.steps[0][1]
    if type(first).__name__ == "TableEncoder" and first.n_encoded_ != p:
        raise ValueError("its columns are not those of its table")
    for name in getattr(model, "id_names_", ()):
        name.encode()
    target = getattr(model, "target_name_", "")
    if target.encode() and target in model.feature_names_in_:
        raise ValueError("its target is one of its columns")


def _ensemble_of(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else model
