"""Models as files: fitted ensembles, and pipelines that end with one, written and read by skops.

A file from an unknown source can at worst hold a wrong model. Before skops builds anything, the archive must be
uncompressed (unpacked no larger than the file; `MOST_...` bounds the rest), and its description may name no type
outside of `TRUSTED`.
"""

from __future__ import annotations

import copy
import io
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from . import OLSEnsembleRegressor, OLSEnsembleRegressorCV, __version__
from ._execution import from_extra, messages
from ._execution.files import atomically

SUFFIX = ".skops"
FORMAT = "olsen model 1"
SCHEMA = "schema.json"
MOST_ENTRIES = 1000  # a model has some forty arrays, whatever its size
MOST_SCHEMA_BYTES = 1 << 26  # names of some forty thousand columns
BYTES_A_NODE = 16  # the least text for a list or a dict of the description: a bare "[]" takes fifty bytes in memory
LONGEST_NAME = 200

ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV)
LOADERS = {f"{kind}Node" for kind in ["Dict", "List", "Tuple", "Json", "Type", "NdArray", "DType", "Slice", "Object"]}
TRUSTED = {
    *("olsen.OLSEnsembleRegressor", "olsen.OLSEnsembleRegressorCV", "olsen.TableColumns", "sklearn.pipeline.Pipeline"),
    *(f"sklearn.compose._column_transformer.{name}" for name in ("ColumnTransformer", "make_column_selector")),
    *(f"sklearn.impute._base.{name}" for name in ("SimpleImputer", "MissingIndicator")),
    *(f"sklearn.preprocessing._encoders.{name}" for name in ("OneHotEncoder", "OrdinalEncoder")),
    "sklearn.preprocessing._data.StandardScaler",
    "sklearn.preprocessing._function_transformer.FunctionTransformer",  # of ColumnTransformer, without a function
    *(f"builtins.{name}" for name in ("dict", "list", "tuple", "slice", "str", "int", "float", "bool", "object")),
    *(f"numpy.{name}" for name in ("ndarray", "dtype", "float64", "float32", "int64", "int32", "bool", "object_")),
}


class ModelFileError(ValueError):
    """A file that is not a model, or not one that can be used, and why."""


def save(model: Any, path: str | os.PathLike[str], *, intervals: bool = True) -> None:
    """Write a fitted ensemble, or a pipeline that ends with one, to a model file.

    :func:`load` reads it. The file holds plain numbers and texts; nothing in it is executed when it is read.

    Parameters
    ----------
    model : OLSEnsembleRegressor, OLSEnsembleRegressorCV or Pipeline
        Fitted, with one target. Before the ensemble a pipeline may have ColumnTransformer, OneHotEncoder,
        OrdinalEncoder, SimpleImputer, StandardScaler and nested pipelines; anything else is refused.
        Parameters of the ensemble that are objects, such as splitters and random states, are not kept: they predict
        nothing.
    path : path
        Where to write, a name that ends with ``.skops``. A file that is there is replaced once the new one is complete.
    intervals : bool, default=True
        Whether to keep the training rows, from which standard errors and most intervals are computed: 8 bytes for each
        row and column, up to 64 MiB (the model's `keep_rows`). Intervals of the default model do not need them, unless
        it was fitted from blocks, a cluster or a device; those of others do.

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
            f"the model has {len(ensemble.coef_)} targets, but a model file holds one. Fit and save a model for each."
        )
    write(path, model, intervals)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file of the command line, or of :func:`save`, as a fitted estimator.

    Parameters
    ----------
    path : path
        A file written by ``olsen fit --out`` or :func:`save`. Only listed types are built: a file from an unknown
        source can at worst hold a wrong model.

    Returns
    -------
    model : Pipeline, OLSEnsembleRegressor or OLSEnsembleRegressorCV
        What was saved. A model of the command is a pipeline of a ColumnTransformer, which takes data frames with the
        columns of the table that was fitted, and the ensemble; the name of its target is in ``target_name_``.

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
    """Write a model, with its training rows if wanted; one that could not be read again is refused."""
    if isinstance(model, Pipeline):
        kept = copy.copy(model)
        kept.steps = [*model.steps[:-1], (model.steps[-1][0], model[-1]._for_file(rows))]
    else:
        kept = model._for_file(rows)
    versions = {"format": FORMAT, "olsen": __version__, "sklearn": sklearn.__version__}
    dumped = load_skops().dumps({**versions, "model": kept})
    with zipfile.ZipFile(io.BytesIO(dumped)) as archive:
        if foreign := _foreign_types(json.loads(archive.read(SCHEMA)), {}):
            raise _refused(", ".join(sorted(foreign)))
    atomically(path, lambda file: file.write_bytes(dumped))


def load_skops() -> Any:
    """skops.io, without torch and Dask: it lists scikit-learn's estimators, and walks through their wrappers."""
    wrappers = [f"sklearn.externals.array_api_compat.{library}" for library in ("torch", "dask")]
    hidden = {name: None for name in wrappers if name not in sys.modules and "skops.io" not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None: not to be imported
    try:
        return from_extra("skops.io", "cli", "A model file")
    finally:
        for name in hidden:
            del sys.modules[name]


def _refused(what: str) -> TypeError:
    return TypeError(
        f"a model file cannot hold {what}: it holds an OLSEnsembleRegressor or OLSEnsembleRegressorCV, alone or at the "
        f"end of a Pipeline of ColumnTransformer, OneHotEncoder, OrdinalEncoder, SimpleImputer, StandardScaler and "
        f"nested Pipelines. Keep other models with joblib or skops, which open in Python alone."
    )


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a model and the versions that wrote it, refusing what is not one, before anything is built from it."""
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {str(path)[:LONGEST_NAME]}.")
    name, loads = path.name[:LONGEST_NAME], load_skops().loads
    data = path.read_bytes()
    with damaged_model(name), warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # of another patch version; see below
        _check(data, name)
        content: dict[str, Any] = loads(data, trusted=sorted(TRUSTED))
        wrote = str(content["sklearn"])
        _check_values(content["model"])
    if wrote.split(".")[:2] != sklearn.__version__.split(".")[:2]:
        messages.warn(
            f"{name} was written with scikit-learn {wrote}, and this is {sklearn.__version__}: transformers of other "
            f"versions may not work, or not alike."
        )
    return content


@contextmanager
def damaged_model(name: str, *passing: type[Exception]) -> Iterator[None]:
    """Turn whatever a damaged model raises into one error, but for errors that pass as they are."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (ModelFileError, *passing)):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_NAME]
        raise ModelFileError(f"{name} is damaged, or not a model written by olsen ({reason}).") from error


def _check(data: bytes, name: str) -> None:
    """Raise for an archive that could fill the memory, another format, and types that are not trusted.

    skops stores its parts uncompressed: nothing in an archive exceeds the file.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        sizes = {entry.filename: entry.file_size for entry in entries}
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if packed or len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > len(data):
            raise ValueError(f"compressed, more than {MOST_ENTRIES} parts, or parts larger than the file")
        text = archive.read(SCHEMA) if sizes[SCHEMA] <= MOST_SCHEMA_BYTES else b"["
    if BYTES_A_NODE * (text.count(b"[") + text.count(b"{")) > len(text):
        raise ValueError(f"its description has more than {MOST_SCHEMA_BYTES} bytes, or is nothing but brackets")
    schema = json.loads(text)
    found = str(json.loads(schema["content"]["format"]["content"]))
    if found != FORMAT:
        wrote = str(json.loads(schema["content"]["olsen"]["content"]))
        raise ModelFileError(
            f"{name} is {found[:40]!r}, and olsen {__version__} reads {FORMAT!r}. Install the version that wrote "
            f"it: pip install 'olsen>={wrote[:20]}'"
        )
    if foreign := _foreign_types(schema, sizes):
        named = ", ".join(kind[:60] for kind in sorted(foreign)[:5])
        raise ModelFileError(f"{name} asks for types that are not trusted: {named}.")


def _foreign_types(schema: Any, sizes: dict[str, int]) -> set[str]:
    """Types and loaders that a description names outside of the lists; raise if it reads parts again and again."""
    foreign, seen, to_read = set(), set(), sum(sizes.values())
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (dict, list)):
            nodes += node.values() if isinstance(node, dict) else node
        if not isinstance(node, dict) or "__loader__" not in node:
            continue
        kind = f"{node.get('__module__')}.{node.get('__class__')}"
        if kind not in TRUSTED or node["__loader__"] not in LOADERS:
            foreign.add(kind)
        if sizes and "file" in node and node.get("__id__") not in seen:
            seen.add(node.get("__id__"))
            to_read -= sizes[node["file"]]
    if to_read < 0:
        raise ValueError("its description names parts of it more than once")
    return foreign


def _check_values(model: Any) -> None:
    """Raise for a model whose values agree with nothing; what else is wrong with one, predictions meet."""
    ensemble = model[-1] if isinstance(model, Pipeline) else model
    if type(ensemble) not in ENSEMBLES:
        raise TypeError(f"a {type(ensemble).__name__} is not a model that can be saved")
    p, coef, intercept = ensemble.n_features_in_, np.asarray(ensemble.coef_), np.asarray(ensemble.intercept_)
    if coef.shape not in ((p,), (1, p)) or intercept.size != 1:
        raise ValueError("coefficients are not those of its columns")
    if not all(np.isfinite(values.astype(float)).all() for values in (coef, intercept)):
        raise ValueError("coefficients are not finite")
    target = getattr(model, "target_name_", "")
    if target.encode() and target in model.feature_names_in_:
        raise ValueError("its target is one of its columns")
