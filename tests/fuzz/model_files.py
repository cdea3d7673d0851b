"""Random edits of genuine model files: ``python -m tests.fuzz.model_files --cases 2000 --seed 1``.

Each edited file must be refused, or load as exactly what it holds, in little memory: at most twenty
times the size of the file, or 32 MB, above what the process had before. What a file holds is read
here without olsen and without skops: parts with NumPy, the description as JSON, each node by
itself.

Peak memory is that of the operating system (VmHWM, reset before each file through
``/proc/self/clear_refs``), in a child process that opens many files and edits none. It counts what
NumPy, Python and the readers of zip and JSON take alike, which tracemalloc does not. It is compared
with the resident memory of the child after all genuine files have been opened, not with that before
the case: memory that an earlier case left behind counts against a later one, and never hides what
that one takes. Before the first and after the last file, 100 MB are measured in the same way. An
address space of 4 GB more than at the start ends a bomb, not the machine; a file that takes longer
than twenty seconds ends its process, which counts as a failure.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # files are small, and memory of threads is not that of files

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

SCHEMA = "schema.json"
TABLE = Path(__file__).parent.parent / "models" / "table.csv"
BATCH = 250
MOST_TIMES = 20
MOST_BYTES = 32 << 20
MOST_SECONDS = 20


# Genuine files


def write_genuine(folder):
    """Write one file of each kind that is accepted, and return the rows to predict by file.

    Kinds are models with rows, of sparse rows, streamed, with splits, in pipelines, and of tables
    with a category.
    """
    import contextlib

    import pandas as pd
    from sklearn.base import clone
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    import olsen
    from olsen import cli

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    y = X[:, 0] + rng.standard_normal(40)
    sparse = sp.csr_array(X * (X > 0.5))
    frame = pd.DataFrame(X[:, :4].copy(), columns=list("abcd"))
    frame["kind"] = np.resize(["u", "v", "w", "rare"], 40)
    frame.loc[frame.index >= 8, "kind"] = np.resize(["u", "v"], 32)
    frame["level"] = np.arange(40) % 3
    frame.loc[3, "a"] = np.nan
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5, drop="if_binary")
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    filled = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encode = make_column_transformer(
        (one_hot, ["kind"]),
        (ordinal, ["level"]),
        (filled, make_column_selector("[a-c]")),
        remainder="passthrough",
    )
    by_place = make_column_transformer((OneHotEncoder(), slice(5, 6)), (StandardScaler(), [1, 2]))

    def plain(n_estimators=10, **parameters):
        return olsen.OLSEnsembleRegressor(n_estimators, random_state=0, **parameters)

    adaptive = olsen.AdaptiveOLSEnsembleRegressor(random_state=0)
    weights = np.ones(40)
    fitted = {
        "tuned": (adaptive.fit(X, y), X),
        "members": (plain(20, max_features=3).fit(X, y), X),
        "rows": (plain(max_samples=0.5).fit(X, y, weights), X),
        "sparse": (plain(max_features=3).fit(sparse, y), sparse),
        "stream": (plain().partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:]), X),
        "sizes": (olsen.OLSEnsembleRegressorCV(sampling="determinantal").fit(X, y), X),
        "splits": (olsen.OLSEnsembleRegressorCV(10, cv=4, random_state=0).fit(X, y), X),
        "pipeline": (make_pipeline(encode, clone(adaptive)).fit(frame, y), frame),
        "places": (make_pipeline(by_place, plain(5)).fit(frame, y), frame),
    }
    for name, (model, _) in fitted.items():
        olsen.save(model, folder / f"{name}.skops")
    with contextlib.redirect_stdout(io.StringIO()):
        for name, options in {"command": [], "filled": ["--missing", "mean"]}.items():
            out = ["--out", str(folder / f"{name}.skops"), "--force", *options]
            fit = ["fit", str(TABLE), "--target", "yield", "--members", "20"]
            assert cli.main(fit + out) == 0
    table = pd.read_csv(TABLE)
    rows = {name: X for name, (_, X) in fitted.items()}
    return {**rows, "command": table, "filled": table}


class Model:
    """The parts of a model file."""

    def __init__(self, data):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.parts = {name: archive.read(name) for name in archive.namelist()}
        self.schema = json.loads(self.parts.pop(SCHEMA))
        self.extra = []  # parts once more, under a name that is there already
        self.compression = zipfile.ZIP_STORED

    def data(self):
        file = io.BytesIO()
        with (
            warnings.catch_warnings(action="ignore"),
            zipfile.ZipFile(file, "w", self.compression) as archive,
        ):
            for name, content in [
                *self.parts.items(),
                *self.extra,
                (SCHEMA, json.dumps(self.schema)),
            ]:
                archive.writestr(name, content)
        return file.getvalue()

    def nodes(self):
        """Every node with the container that holds it, and its place there."""
        located = []
        stack = [(None, None, self.schema)]
        while stack:
            holder, key, value = stack.pop()
            if isinstance(value, dict) and "__loader__" in value and holder is not None:
                located.append((holder, key, value))
            if isinstance(value, (dict, list)):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                stack += [(value, inner, child) for inner, child in items]
        return located


# Edits: functions of a generator and a model, which they change


def listed(names, module=None):
    return [f"{module}.{name}" if module else name for name in names.split()]


LOADERS = listed(
    "DictNode ListNode TupleNode JsonNode TypeNode NdArrayNode DTypeNode SliceNode ObjectNode"
    " SetNode CachedNode ReduceNode ConstructorFromReduceNode MethodNode FunctionNode PartialNode"
    " BytesNode BytearrayNode DefaultDictNode MaskedArrayNode SparseMatrixNode OperatorFuncNode"
    " RandomStateNode RandomGeneratorNode TreeNode"
)
KINDS = [
    *listed(
        "dict list tuple slice str int float bool object bytes bytearray set range memoryview type"
        " map",
        "builtins",
    ),
    *listed(
        "ndarray dtype float64 float32 int64 int32 bool object_ recarray matrix empty zeros str_"
        " bytes_ ma.MaskedArray",
        "numpy",
    ),
    *listed(
        "pipeline.Pipeline preprocessing._encoders.OneHotEncoder"
        " preprocessing._function_transformer.FunctionTransformer",
        "sklearn",
    ),
    "scipy.sparse.csr_matrix",
    "olsen.OLSEnsembleRegressor",
    "olsen.TableEncoder",
]
NUMBERS = [
    *listed("0 -1 1 2 7 64 1000000 200000000 1e9 1e300 NaN Infinity true null 4294967296"),
    *listed('9223372036854775808 0.5 "64" [64] {"a":64} "\\ud83d\\ude00" "fixed"'),
]
ATTRIBUTES = listed(
    "predict transform func memory _n_features_outs __class__ __setstate__ _transform _fitted"
    " coef_ n_features_in_ categories_ drop_idx_ dtype"
)


def node_of(loader, kind, content=None, **fields):
    module, name = kind.rsplit(".", 1)
    return {
        "__class__": name,
        "__module__": module,
        "__loader__": loader,
        "content": content,
        **fields,
    }


def number_node(text):
    return node_of("JsonNode", "builtins.str", text, is_json=True)


def npy(array, header=None):
    """An array as a part, or its bytes under another header."""
    file = io.BytesIO()
    np.save(file, array)
    if header is None:
        return file.getvalue()
    changed = io.BytesIO()
    np.lib.format.write_array_header_1_0(changed, header)
    return changed.getvalue() + array.tobytes()


def drawn(rng, values):
    return values[rng.integers(len(values))]


def drawn_node(rng, model):
    return drawn(rng, model.nodes())[2]


def drawn_part(rng, model):
    return drawn(rng, list(model.parts))


def put_node(rng, model, node):
    """Put a node at the place of another."""
    holder, key, _ = drawn(rng, model.nodes())
    holder[key] = node


def other_loader(rng, model):
    drawn_node(rng, model)["__loader__"] = drawn(rng, LOADERS)


def other_type(rng, model):
    node = drawn_node(rng, model)
    node["__module__"], node["__class__"] = drawn(rng, KINDS).rsplit(".", 1)


def constructed(rng, model):
    """A node that calls a type with a number."""
    length = drawn(rng, [1, 3, 6, 64, 20_000_000, 200_000_000])
    node = number_node(str(length))
    numbers = drawn(rng, [[node], [length], [node] * 2, length])
    loader = drawn(
        rng, listed("ListNode SetNode TupleNode ConstructorFromReduceNode DictNode ObjectNode")
    )
    content = node_of("TupleNode", "builtins.tuple", numbers) if loader[0] in "CO" else numbers
    kind = drawn(
        rng,
        ["numpy.ndarray", "numpy.ndarray", "builtins.bytearray", "numpy.dtype", "builtins.list"],
    )
    put_node(rng, model, node_of(loader, kind, content))


def moved(rng, model):
    """A node at the place of another, of the same loader or not."""
    nodes = model.nodes()
    holder, key, node = drawn(rng, nodes)
    similar = [other for *_, other in nodes if other["__loader__"] == node["__loader__"]]
    holder[key] = drawn(rng, similar) if rng.random() < 0.7 else drawn(rng, nodes)[2]


def removed(rng, model):
    holder, key, _ = drawn(rng, model.nodes())
    del holder[key]


def field_removed(rng, model):
    node = drawn_node(rng, model)
    del node[drawn(rng, list(node))]


def another_id(rng, model):
    ids = [drawn_node(rng, model).get("__id__"), None, 0, "1", [1], 1.0]
    drawn_node(rng, model)["__id__"] = drawn(rng, ids)


def without_ids(rng, model):
    for *_, node in model.nodes():
        node.pop("__id__", None)


def other_value(rng, model):
    node = drawn(rng, [node for *_, node in model.nodes() if node["__loader__"] == "JsonNode"])
    node["content"] = drawn(rng, NUMBERS) if rng.random() < 0.8 else str(rng.standard_normal())
    if rng.random() < 0.8:
        node.pop("__id__", None)


def expanding(rng, model):
    """Lists in lists that name one another, width^depth items when written out."""
    depth = drawn(rng, [2, 4, 6, 8, 40])
    width = drawn(rng, [2, 10])
    node = number_node("1")
    for level in range(depth):
        node["__id__"] = 10**6 + level
        references = [{**node, "content": []}] * (width - 1)
        node = node_of("ListNode", "builtins.list", [node, *references])
    if rng.random() < 0.5:
        shape = node_of("TupleNode", "builtins.tuple", [number_node(str(width))] * depth)
        node = node_of("NdArrayNode", "numpy.ndarray", node["content"], type="json", shape=shape)
    put_node(rng, model, node)


def repeated(rng, model):
    """A node many times, each by itself or under one id."""
    holder, key, node = drawn(rng, model.nodes())
    if len(json.dumps(node)) > 2000:
        return
    copied = dict(node)
    if rng.random() < 0.5:
        copied.pop("__id__", None)
    holder[key] = node_of("ListNode", "builtins.list", [copied] * int(rng.integers(2, 3000)))


def deep(rng, model):
    """Lists in lists, or brackets in a string."""
    depth = drawn(rng, [5, 100, 2000, 20_000])
    if rng.random() < 0.5:
        put_node(rng, model, number_node("[" * depth + "]" * depth))
        return
    node = number_node("1")
    for _ in range(min(depth, 150)):
        node = node_of("ListNode", "builtins.list", [node])
    put_node(rng, model, node)


def long_text(rng, model):
    piece = drawn(rng, ["a", "[],", "\U0001f600", '"', "1,"])
    put_node(rng, model, number_node(json.dumps(piece * int(rng.integers(1, 100_000)))))


def other_number(rng, model):
    """One number of a part."""
    name = drawn_part(rng, model)
    array = np.load(io.BytesIO(model.parts[name])).copy()
    if array.size and array.dtype.kind in "biuf":
        value = drawn(rng, [0, 1, -1, 7, 1e6, np.nan, np.inf, rng.standard_normal()])
        with warnings.catch_warnings(action="ignore"):
            array.flat[rng.integers(array.size)] = np.array(value).astype(array.dtype)
        model.parts[name] = npy(array)


def other_array(rng, model):
    """Another array as a part, also of another type."""
    shape = drawn(rng, [(), (1,), (6,), (3,), (3, 6), (40,), (1, 1, 1), (0,), (0, 6), (200_000,)])
    kind = drawn(rng, listed("f8 f4 f2 i8 i4 i1 ? S1 U2 c16 M8[s] >f8"))
    array = np.asarray(rng.integers(0, 9, shape)).astype(kind)
    model.parts[drawn_part(rng, model)] = npy(array)


LYING_SHAPES = [
    *((n,) for n in (64, 2 * 10**8, 60_000_000_000, 0, -1, 2**62)),
    (2**32, 2**32),
    (1,) * 32,
    (),
]
LYING_TYPES = [*listed("|S0 <U0 |V0 |O <f2 <f8"), [("a", "<f8", (0,))]]


def lying_header(rng, model):
    """A header of another shape or type than the part has."""
    name = drawn_part(rng, model)
    array = np.load(io.BytesIO(model.parts[name]))
    own_type = array.dtype.str
    header = {
        "descr": drawn(rng, [own_type, own_type, *LYING_TYPES]),
        "fortran_order": bool(rng.integers(2)),
        "shape": drawn(rng, LYING_SHAPES),
    }
    if array.ndim and rng.random() < 0.3:
        array = array[..., :0]
    model.parts[name] = npy(array, header)


def header_only(rng, model):
    """Many items of no bytes, as an array or as a list."""
    name = f"{rng.integers(1 << 40)}.npy"
    descr = drawn(rng, ["|S0", "<U0", "|V0"])
    header = {"descr": descr, "fortran_order": False, "shape": (20_000_000,)}
    model.parts[name] = npy(np.zeros(0), header)
    kind = drawn(rng, ["builtins.list", "builtins.tuple", "numpy.ndarray", "builtins.str"])
    put_node(rng, model, {**node_of("NdArrayNode", kind), "type": "numpy", "file": name})


def cut_part(rng, model):
    name = drawn_part(rng, model)
    content = model.parts[name]
    shorter = content[: rng.integers(len(content) + 1)]
    model.parts[name] = shorter if rng.random() < 0.5 else content + b"\0" * 8


def other_file(rng, model):
    node = drawn(rng, [node for *_, node in model.nodes() if "file" in node])
    node["file"] = drawn(rng, [*model.parts, SCHEMA, "../1.npy", "/etc/hostname", "", 5])


def twice(rng, model):
    name = drawn_part(rng, model)
    model.extra.append((drawn(rng, [name, SCHEMA]), drawn(rng, [model.parts[name], b"{}"])))


def packed(rng, model):
    model.parts[drawn_part(rng, model)] = npy(np.zeros(int(rng.integers(1, 10_000_000))))
    model.compression = zipfile.ZIP_DEFLATED


def attribute(rng, model):
    """A value in the place of a method, a parameter or a private attribute."""
    objects = [node for *_, node in model.nodes() if node["__loader__"] == "ObjectNode"]
    content = drawn(rng, objects)["content"]
    name = drawn(rng, ATTRIBUTES)
    kind = drawn(rng, listed("numpy.float64 builtins.str numpy.ndarray builtins.object"))
    number = number_node(drawn(rng, NUMBERS))
    value = drawn(rng, [number, node_of("TypeNode", kind), drawn_node(rng, model)])
    items = content.get("content")
    fields = drawn(rng, [content, items]) if isinstance(items, dict) else content
    fields[name] = value
    if fields is items and len(items) > len(content["key_types"]["content"]):
        content["key_types"]["content"].append(node_of("TypeNode", "builtins.str"))
        content["key_types"].pop("__id__", None)
        content.pop("__id__", None)


EDITS = [
    other_loader,
    other_type,
    constructed,
    moved,
    removed,
    field_removed,
    another_id,
    without_ids,
    other_value,
    expanding,
    repeated,
    deep,
    long_text,
    other_number,
    other_array,
    lying_header,
    header_only,
    cut_part,
    other_file,
    twice,
    packed,
    attribute,
]


def edited(rng, data):
    """The bytes of a file after one to three edits, and their names."""
    while True:
        model = Model(data)
        names = []
        try:
            for _ in range(1 + (rng.random() < 0.3) + (rng.random() < 0.1)):
                edit = drawn(rng, EDITS)
                edit(rng, model)
                # Nodes that were put elsewhere become copies; one inside of itself is a ValueError,
                # not a file.
                model.schema = json.loads(json.dumps(model.schema))
                names.append(edit.__name__)
            return model.data(), "+".join(names)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
            continue  # an edit that the one before it has made impossible


# What a file holds, read without olsen and skops


TYPES = {
    **{f"builtins.{kind.__name__}": kind for kind in (str, int, float, bool, object)},
    **{
        f"numpy.{name}": getattr(np, name)
        for name in ("float64", "float32", "int64", "int32", "bool", "object_")
    },
}


class Described:
    """An object of a description: its type and its attributes."""

    def __init__(self, kind, attributes):
        self.kind = kind
        self.attributes = attributes


def held(node, archive):
    """The value that a node stands for, if it is one of the nodes that a model file may have."""
    loader = node["__loader__"]
    kind = f"{node['__module__']}.{node['__class__']}"
    pair = (loader, kind)
    if pair == ("DictNode", "builtins.dict"):
        types = held(node["key_types"], archive)
        assert len(types) == len(node["content"])
        return {
            convert(key): held(value, archive)
            for convert, (key, value) in zip(types, node["content"].items(), strict=True)
        }
    if pair in (("ListNode", "builtins.list"), ("TupleNode", "builtins.tuple")):
        return TYPES.get(kind, list if loader[0] == "L" else tuple)(
            held(item, archive) for item in node["content"]
        )
    if pair == ("JsonNode", "builtins.str"):
        return json.loads(node["content"])
    if pair == ("SliceNode", "builtins.slice"):
        return slice(*(node["content"][end] for end in ("start", "stop", "step")))
    if loader == "TypeNode":
        return TYPES[kind]
    if pair == ("DTypeNode", "numpy.dtype"):
        return held(node["content"], archive).dtype
    if loader == "ObjectNode":
        return Described(kind, held(node["content"], archive))
    assert loader == "NdArrayNode", pair
    if node["type"] == "numpy":
        with archive.open(node["file"]) as part:
            array = np.load(io.BytesIO(part.read()), allow_pickle=False)
        return array if kind == "numpy.ndarray" else TYPES[kind](array)
    assert kind == "numpy.ndarray" and node["type"] == "json"
    items = [held(item, archive) for item in node["content"]]
    array = np.empty(held(node["shape"], archive), dtype=object)
    array[...] = np.array(items, dtype=object) if array.ndim > 1 else array
    if array.ndim == 1:
        array[:] = items
    return array


def difference(expected, value, path="model"):
    """Where a loaded value is not the one that the file holds; None where it is."""
    if isinstance(expected, Described):
        return _object_difference(expected, value, path)
    names_class = isinstance(expected, dict) and "class" in expected and not isinstance(value, dict)
    if dataclasses.is_dataclass(value) or sp.issparse(value) or names_class:
        return _result_difference(expected, value, path)
    if isinstance(expected, np.ndarray):
        if not isinstance(value, np.ndarray) or (expected.dtype, expected.shape) != (
            value.dtype,
            value.shape,
        ):
            return f"{path}: {str(value)[:60]} is not the array"
        if expected.dtype != object:
            return None if expected.tobytes() == value.tobytes() else f"{path}: other numbers"
        expected = expected.ravel().tolist()
        value = value.ravel().tolist()
    if type(expected) is not type(value):
        return f"{path}: a {type(value).__name__} for a {type(expected).__name__}"
    if isinstance(expected, (list, tuple, dict)):
        if len(expected) != len(value):
            return f"{path}: {len(value)} for {len(expected)} items"
        pairs = (
            [(key, expected[key], value.get(key)) for key in expected]
            if isinstance(expected, dict)
            else zip(range(len(value)), expected, value, strict=True)
        )
        differences = (
            difference(inner, loaded, f"{path}.{str(key)[:40]}") for key, inner, loaded in pairs
        )
        return next((words for words in differences if words), None)
    equal = (
        repr(expected) == repr(value)
        if isinstance(expected, (float, np.generic))
        else expected == value
    )
    return None if equal else f"{path}: {str(value)[:60]} for {str(expected)[:60]}"


def _object_difference(expected, value, path):
    module, name = expected.kind.rsplit(".", 1)
    if (type(value).__module__, type(value).__name__) != (module, name):
        return f"{path}: a {type(value)} for a {expected.kind}"
    attributes = dict(expected.attributes)
    if module.startswith("sklearn."):
        attributes.pop("_sklearn_version", None)  # scikit-learn compares it with its own
    unlike = set(attributes) ^ set(vars(value))
    if unlike - {"_fitted"}:  # which is None where the file has none
        return f"{path}: other attributes {unlike}"
    return difference_of_dicts(attributes, vars(value), path)


def difference_of_dicts(expected, values, path):
    differences = (difference(expected[key], values[key], f"{path}.{key[:40]}") for key in expected)
    return next((words for words in differences if words), None)


def _result_difference(expected, value, path):
    """Parts of a fit, which are dicts with the name of their class in the file."""
    if not isinstance(expected, dict):
        return f"{path}: a {type(value).__name__} for {str(expected)[:60]}"
    fields = {key: part for key, part in expected.items() if key != "class"}
    if expected["class"] == "csc_array":
        if not sp.issparse(value) or value.shape != tuple(fields["shape"]):
            return f"{path}: another sparse matrix"
        parts = zip(fields["arg1"], (value.data, value.indices, value.indptr), strict=True)
        return (
            None
            if all(np.array_equal(*pair, equal_nan=True) for pair in parts)
            else f"{path}: other entries"
        )
    if expected["class"] == "_pairs":
        parts = [part for pair in value for part in pair]
        equal = (
            np.array_equal(np.concatenate(parts), fields["rows"])
            and [*map(len, parts)] == fields["counts"].tolist()
        )
        return None if equal else f"{path}: other splits"
    if type(value).__name__ != expected["class"]:
        return f"{path}: a {type(value).__name__} for a {expected['class']}"
    if not dataclasses.is_dataclass(value):
        return difference_of_dicts(fields, value._asdict(), path)
    for field in dataclasses.fields(value):
        if field.init and field.name not in fields and getattr(value, field.name) != field.default:
            return f"{path}.{field.name}: {getattr(value, field.name)} is not in the file"
    return difference_of_dicts(fields, {name: getattr(value, name) for name in fields}, path)


def what_differs(data, model):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read(SCHEMA))
        try:
            expected = held(schema["content"]["model"], archive)
        except Exception as error:
            return f"loaded an unreadable file ({type(error).__name__}: {error})"
        return difference(expected, model)


# Files are edited in one process, and opened in another


def kilobytes(name):
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def open_all(folder):
    """Open the edited files of a folder in this process; print a line of JSON for each."""
    import resource

    import olsen

    with warnings.catch_warnings(action="ignore"):
        rows = write_genuine(folder / "genuine")
        for name in rows:
            path = folder / "genuine" / f"{name}.skops"
            model = olsen.load(path)
            model.predict(rows[name])
            words = what_differs(path.read_bytes(), model)
            assert words is None, f"the oracle does not read {name}: {words}"
        del model
        limit = kilobytes("VmSize") * 1024 + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        resident_before = kilobytes("VmRSS")
        assert control(resident_before) < 110, (
            "memory of the genuine files is counted as that of the edited ones"
        )
        for path in sorted(folder.glob("*.skops")):
            print(
                json.dumps(
                    {
                        "path": path.name,
                        **opened(path, rows[path.stem.split("-")[1]], resident_before),
                    }
                ),
                flush=True,
            )
        control(resident_before)


def control(resident_before):
    """Measure 100 MB: a measure that does not show 100 MB would not show a bomb either."""
    Path("/proc/self/clear_refs").write_text("5")
    assert len(b"x" * (100 << 20))
    grown = (kilobytes("VmHWM") - resident_before) / 1024
    assert grown > 95, f"100 MB were measured as {grown:.0f} MB"
    return grown


def opened(path, rows, resident_before):
    """What became of a file: whether it was refused, what is wrong, and how many bytes the process
    grew at most.
    """
    import olsen
    from olsen._persistence import ModelFileError

    model = None
    wrong = None
    signal.alarm(MOST_SECONDS)  # which ends the process
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    try:
        model = olsen.load(path)
        outcome = "loaded"
        model.predict(rows)
    except ModelFileError:
        outcome = "refused"
    except Exception as error:
        outcome = "loaded, does not predict"
        if model is None:
            wrong = f"{type(error).__name__} escaped: {str(error)[:100]}"
    signal.alarm(0)
    grown = (kilobytes("VmHWM") - resident_before) * 1024
    n_bytes = path.stat().st_size
    allowed = max(MOST_TIMES * n_bytes, MOST_BYTES)
    if model is not None:
        wrong = what_differs(path.read_bytes(), model)
    if grown > allowed:
        wrong = f"took {grown >> 20} MB for a file of {n_bytes} bytes; {wrong}"
    return {
        "outcome": outcome,
        "wrong": wrong,
        "bytes": n_bytes,
        "grown": grown,
        "of_allowed": grown / allowed,
    }


def run(cases, seed):
    """Results of all cases; a process that dies is a failure of its case."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        write_genuine(Path(folder))
        genuine = {path.stem: path.read_bytes() for path in sorted(Path(folder).glob("*.skops"))}
    for first in range(0, cases, BATCH):
        with tempfile.TemporaryDirectory() as folder:
            edits = {}
            for case in range(first, min(first + BATCH, cases)):
                rng = np.random.default_rng([seed, case])
                name = drawn(rng, list(genuine))
                data, words = edited(rng, genuine[name])
                path = Path(folder) / f"{case:06d}-{name}.skops"
                path.write_bytes(data)
                edits[path.name] = words
            while edits:
                command = [sys.executable, "-m", "tests.fuzz.model_files", "--open", folder]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                for line in done.stdout.splitlines():
                    result = json.loads(line)
                    (Path(folder) / result["path"]).unlink()
                    yield {**result, "edits": edits.pop(result["path"])}
                if done.returncode and not done.returncode < 0:
                    raise RuntimeError(done.stderr)
                if (
                    done.returncode
                ):  # by a signal: the process died over the first of the files that are left
                    path = min(Path(folder).glob("*.skops"))
                    path.unlink()
                    yield {
                        "path": path.name,
                        "edits": edits.pop(path.name),
                        "outcome": "died",
                        "bytes": 0,
                        "grown": 0,
                        "of_allowed": 0,
                        "wrong": f"the process ended with {done.returncode}",
                    }


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None, help="random by default")
    parser.add_argument(
        "--open", type=Path, default=None, help="a folder of edited files: that of a child process"
    )
    options = parser.parse_args(arguments)
    if options.open is not None:
        open_all(options.open)
        return 0
    seed = (
        int(np.random.SeedSequence().entropy % (1 << 31)) if options.seed is None else options.seed
    )
    started = time.time()
    results = []
    for result in run(options.cases, seed):
        results.append(result)
        print(f"\r{len(results)} of {options.cases} files", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    counts = Counter(result["outcome"] for result in results)
    wrong = [result for result in results if result["wrong"]]
    largest = max(results, key=lambda result: result["of_allowed"])
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    print(
        f"{len(results)} edited files, seed {seed}, {time.time() - started:.0f} s: {outcomes};"
        f" {len(wrong)} failures"
    )
    print(
        f"most memory: {largest['grown'] / 2**20:.1f} MB for a file of"
        f" {largest['bytes'] / 2**20:.2f} MB ({largest['edits']}),"
        f" {100 * largest['of_allowed']:.0f}% of what is allowed"
    )
    for result in wrong[:40]:
        print(f"\n{result['path']}, {result['edits']}: {result['wrong']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
