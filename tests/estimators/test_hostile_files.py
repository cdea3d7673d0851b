"""Files from strangers: damaged, lying, oversized, or full of control characters. None does more
than end a command.

Every hostile model goes through ``olsen predict``: it is refused in one line, or it predicts, as a
wrong model may.
"""

import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from olsen import cli

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
skops_io = pytest.importorskip("skops.io")

TABLE = Path(__file__).parents[1] / "models" / "table.csv"
SCHEMA = "schema.json"


# Models, taken apart and put together again


def parts_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(parts, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, content)
    return file.getvalue()


def nodes_of(node, path=()):
    """Paths and nodes of a description that say what is to be built."""
    if isinstance(node, dict) and "__loader__" in node:
        yield path, node
    for key, child in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    ):
        yield from nodes_of(child, (*path, key))


def changed(node, path, new):
    """A copy with another node at this place, None: with none; what lies beside the path is shared."""
    if not path:
        return new
    copied, (key, *rest) = copy.copy(node), path
    if new is None and not rest:
        del copied[key]
    else:
        copied[key] = changed(node.get(key) if isinstance(node, dict) else node[key], rest, new)
    return copied


class Model:
    """A model file, and changed copies of it."""

    def __init__(self, data):
        self.data, self.parts = data, parts_of(data)
        self.schema = json.loads(self.parts[SCHEMA])
        self.nodes = dict(nodes_of(self.schema))
        self.coef = next(path for path in self.nodes if path[-1:] == ("coef_",))

    def sample(self, rng, count, loader=None):
        found = [
            path
            for path, node in self.nodes.items()
            if path and loader in (None, node["__loader__"])
        ]
        return [found[i] for i in rng.choice(len(found), min(count, len(found)), replace=False)]

    def replaced(self, path, node):
        return archive_of({**self.parts, SCHEMA: json.dumps(changed(self.schema, path, node))})

    def without(self, path):
        return self.replaced(path, None)


def single(text):
    return {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": text,
        "is_json": True,
    }


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.skops"
    assert (
        cli.main(["fit", str(TABLE), "--target", "yield", "--out", str(path), "--missing", "mean"])
        == 0
    )
    return Model(path.read_bytes())


# The classes of hostile models: pairs of a name and the bytes


def damaged_archives(rng, model):
    data, parts = model.data, model.parts
    for i in range(
        40
    ):  # the second half in the list of parts and the end, where every bit means something
        flipped = bytearray(data)
        flipped[rng.integers(len(data)) if i < 20 else -int(rng.integers(1, 2000))] ^= (
            1 << rng.integers(8)
        )
        yield f"bit {i}", bytes(flipped)
    for length in (0, 1, 22, len(data) - 1, *rng.integers(2, len(data), size=12)):
        yield f"first {length}", data[:length]
        yield f"without {length // 2} to {length}", data[: length // 2] + data[length:]
    yield "extended", data + b"more"
    yield "text", b"hello"
    yield "another model", skops_io.dumps(Ridge())
    names = [name for name in parts if name != SCHEMA]
    for first, second in rng.choice(names, (15, 2)):
        yield f"{first} as {second}", archive_of({**parts, second: parts[first]})
        yield (
            f"without {first}",
            archive_of({name: part for name, part in parts.items() if name != first}),
        )
    with warnings.catch_warnings(action="ignore"):  # zipfile says that a name is there already
        yield "twice", archive_of([*parts.items(), (SCHEMA, b"{}")])
    array = model.sample(rng, 1, "NdArrayNode")[0]
    for name in ("../../outside.npy", "/etc/passwd", "C:\\1.npy", "1.npy\x1b[2J", "x" * 60_000):
        yield f"extra {name[:20]!r}", archive_of({**parts, name: b"x"})
        yield (
            f"asked for {name[:20]!r}",
            model.replaced(array, {**model.nodes[array], "file": name}),
        )


def wrong_values(rng, model):
    texts = (
        "null",
        '"text"',
        "-1",
        "NaN",
        "1e999",
        "[1]",
        "{}",
        "true",
        "1" + "0" * 400,
        "not json",
        "[" * 5000,
        '"\\ud800"',
        "0.5",
    )
    for path in model.sample(rng, 80, "JsonNode"):
        yield f"{path} = text", model.replaced(path, single(str(rng.choice(texts))))
    for path in model.sample(rng, 20, "JsonNode"):
        yield (
            f"{path} holds no text",
            model.replaced(path, single(rng.choice(np.array([None, 5], dtype=object)))),
        )
    for path in model.sample(rng, 60):
        yield f"without {path}", model.without(path)
    for text in (
        "olsen model 0",
        "olsen model 1",
        "olsen model 999999",
        "olsen model",
        "another",
        1,
        None,
    ):
        yield f"format {text}", model.replaced(("content", "format"), single(json.dumps(text)))
    for name in ("predict", "__class__", "__dict__", "coef_", "_fitted", "steps"):
        for path in (model.coef[:-1], ("content",)):
            yield f"{name} in {path[-1]}", model.replaced((*path, name), single("1"))


def wrong_arrays(rng, model):
    """Arrays that agree with nothing, some of which have no part in predictions."""
    for path in model.sample(rng, 40, "NdArrayNode"):
        file = model.nodes[path].get("file")
        if file is None:
            continue
        right = np.load(io.BytesIO(model.parts[file]))
        numbers = right.astype(float) if right.dtype.kind in "iufb" else np.zeros(right.shape)
        others = {
            "longer": np.resize(right, right.size + 1),
            "table": np.resize(right, (2, 3)),
            "nan": numbers * np.nan,
            "text": np.array(["a"]),
            "complex": numbers + 1j,
            "cube": np.zeros((1, 1, 1)),
            "records": np.zeros(3, [("a", "f8")]),
        }
        for name in rng.choice(list(others), 2, replace=False):
            yield f"{path} {name}", archive_of({**model.parts, file: npy(others[name])})
    file = model.nodes[model.coef]["file"]
    right = f"{np.load(io.BytesIO(model.parts[file])).shape}, ".encode()
    for shape in (
        b"(60000000000,), ",
        b"(9, 9), ",
        b"(-60,), ",
        b"(1e3,), ",
        b"(True,), ",
        b"(60,) * 9, ",
    ):
        yield (
            f"shape {shape!r}",
            archive_of({**model.parts, file: model.parts[file].replace(right, shape)}),
        )
    for kind in (b"'|O'", b"'<f2'", b"'<U9'", b"'|V8'", b"__import__('os')"):
        yield (
            f"type {kind!r}",
            archive_of({**model.parts, file: model.parts[file].replace(b"'<f8'", kind)}),
        )
    pickled = io.BytesIO()
    np.save(pickled, np.array([os.getcwd], dtype=object), allow_pickle=True)
    yield "pickle in an array", archive_of({**model.parts, file: pickled.getvalue()})


def foreign_types(model, canary):
    system = {
        "__class__": "system",
        "__module__": os.system.__module__,
        "__loader__": "FunctionNode",
        "content": {},
    }
    arguments = {
        "__class__": "tuple",
        "__module__": "builtins",
        "__loader__": "TupleNode",
        "content": [single(json.dumps(f"touch {canary}"))],
    }
    none = single("null")
    hostile = {
        "function": system,
        "reduce": {
            "__class__": "system",
            "__module__": "os",
            "__loader__": "ReduceNode",
            "__reduce__": {"args": arguments},
            "content": arguments,
        },
        "method": {
            "__class__": "str",
            "__module__": "builtins",
            "__loader__": "MethodNode",
            "content": {"func": "format", "obj": single('"os"')},
        },
        "object": {
            "__class__": "Popen",
            "__module__": "subprocess",
            "__loader__": "ObjectNode",
            "content": arguments,
        },
        "scikit-learn": {
            "__class__": "PCA",
            "__module__": "sklearn.decomposition._pca",
            "__loader__": "ObjectNode",
            "content": none,
        },
        "escape": {
            "__class__": "\x1b[2J\nolsen: all is well",
            "__module__": "os",
            "__loader__": "TypeNode",
        },
        "long": {"__class__": "x" * 1_000_000, "__module__": "os", "__loader__": "TypeNode"},
        "loader": {
            "__class__": "str",
            "__module__": "builtins",
            "__loader__": "os.system",
            "content": "touch",
        },
    }
    for name, node in hostile.items():
        for path in (
            ("content", "sklearn"),
            ("content", "model"),
            ("key_types",),
            ("content", "model", "content"),
        ):
            yield f"{name} as {path[-1]}", model.replaced(path, node)


def bombs(model):
    """Small files that would be large in memory, were they believed."""
    parts, file = model.parts, model.nodes[model.coef]["file"]
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        zeros = npy(np.zeros(20_000_000 if method == zipfile.ZIP_DEFLATED else 200_000))
        yield f"compressed {method}", archive_of({**parts, file: zeros}, compression=method)
    yield "20,000 parts", archive_of([*parts.items(), *((f"{i}.npy", b"") for i in range(20_000))])
    for name, text in {
        "deep": b'{"content":' * 100_000 + b"1" + b"}" * 100_000,
        "lists in lists": b"[" * 1_000_000,
        "many lists": b"[" + b"[]," * 3_000_000 + b"1]",
        "long description": b" " * ((1 << 26) + 1),
    }.items():
        yield name, archive_of({**parts, SCHEMA: text})
    large = {**parts, "z": npy(np.zeros(1_000_000))}
    node = {**model.nodes[model.coef], "file": "z"}
    # skops reads the part of a node of id 0 again for every such node
    for name, ids in {
        "one part 500 times": range(500),
        "one part 500 times, id 0": [0] * 500,
    }.items():
        again = {
            "__class__": "list",
            "__module__": "builtins",
            "__loader__": "ListNode",
            "content": [{**node, "__id__": i} for i in ids],
        }
        schema = changed(model.schema, ("content", "sklearn"), again)
        yield name, archive_of({**large, SCHEMA: json.dumps(schema)})
    empty = (
        npy(np.zeros(0, "S1")).replace(b"S1", b"S0").replace(b"(0,), }       ", b"(20000000,), }")
    )
    items = {
        "__class__": "list",
        "__module__": "builtins",
        "__loader__": "NdArrayNode",
        "type": "numpy",
        "file": "e",
    }
    schema = changed(model.schema, ("content", "sklearn"), items)
    yield "items of no bytes", archive_of({**parts, "e": empty, SCHEMA: json.dumps(schema)})
    length = built("ListNode", "numpy.ndarray", [200_000_000])
    yield "length from a number", model.replaced(("content", "sklearn"), length)
    short = built("ListNode", "builtins.list", [1])
    for level in range(60):  # each names the one inside twice, the second time by its number alone
        short["__id__"] = level + 1
        short = built("ListNode", "builtins.list", [short, {**short, "content": []}])
    yield "twice in twice", model.replaced(("content", "sklearn"), short)


def built(loader, kind, numbers):
    """A node that builds a type from numbers, or from nodes."""
    module, name = kind.rsplit(".", 1)
    content = [single(str(number)) if isinstance(number, int) else number for number in numbers]
    return {"__class__": name, "__module__": module, "__loader__": loader, "content": content}


def outcomes(files, path):
    """How many of the files were refused in one line, and how many predicted; every fourth is also
    shown.
    """
    found = Counter()
    for i, (name, data) in enumerate(files):
        path.write_bytes(data)
        for command in (["predict", path, TABLE, "--interval", "0.9"], ["show", path])[
            : 2 - bool(i % 4)
        ]:
            out, err = io.StringIO(), io.StringIO()
            streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
            with streams[0], streams[1], warnings.catch_warnings(action="ignore"):
                code = cli.main(list(map(str, command)))
            out, err = out.getvalue(), err.getvalue()
            found[code] += command[0] == "predict"
            if code:
                assert code == 1 and out == "", (name, err)
                assert err.startswith("olsen: ") and err.count("\n") == 1, (name, err)
                assert err[:-1].isprintable() and len(err) < 1000, (name, err)
            elif command[0] == "predict":
                assert len(np.genfromtxt(io.StringIO(out), delimiter=",", skip_header=1)) == 60, (
                    name
                )
    return found


def test_hostile_models_are_refused_in_one_line_or_harmless(seed, model, tmp_path):
    rng = np.random.default_rng([seed, 3])
    for kind in (damaged_archives, wrong_values, wrong_arrays):
        found = outcomes(kind(rng, model), tmp_path / "hostile.skops")
        print(f"{kind.__name__}: {found[1]} refused, {found[0]} predicted")
        assert found[1] >= 20, kind.__name__


def test_foreign_types_are_not_built(model, tmp_path):
    canary = tmp_path / "canary"
    found = outcomes(foreign_types(model, canary), tmp_path / "hostile.skops")
    assert found[0] == 0 and found[1] == 32 and not canary.exists()


MEASURE = """
import contextlib, io, json, re, resource, sys
from olsen import cli

def kilobytes(name):
    with open("/proc/self/status") as file:
        return int(re.search(name + r":\\s+(\\d+)", file.read())[1])

def growth(work):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before = kilobytes("VmRSS")
    return work(), (kilobytes("VmHWM") - before) // 1024

def run(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code, grown = growth(lambda: cli.main(arguments))
    return [code, out.getvalue()[:500], err.getvalue(), grown]

first, *others = json.loads(sys.stdin.read())
run(first)  # imports, threads and their buffers
limit = kilobytes("VmSize") * 1024 + (4 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))  # a bomb ends this process only
control = growth(lambda: len(b"x" * (100 << 20)))[1]
print(json.dumps([control, [run(arguments) for arguments in others]]))
"""


def measured(*commands):
    """Exit code, output, error stream and growth in MB of each of the commands, run in one other
    process.
    """
    text = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    control, found = json.loads(done.stdout)
    assert 95 <= control <= 110  # what 100 MB look like
    return found


needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux"
)


@pytest.fixture(scope="module")
def bomb_files(model, tmp_path_factory):
    here = tmp_path_factory.mktemp("bombs")
    for i, (_, data) in enumerate(bombs(model)):
        (here / f"{i}.skops").write_bytes(data)
    return sorted(here.glob("*.skops"))


@pytest.fixture(scope="module")
def large_tables(tmp_path_factory):
    """A text of 100 kB in 200 000 rows, 20 kB on disk and 20 GB written out; two headers of nothing
    but commas.
    """
    here = tmp_path_factory.mktemp("tables")
    places = np.arange(200_000) % 2
    texts = pa.DictionaryArray.from_arrays(
        pa.array(places, "int32"), ["x" * 100_000, "y" * 100_000]
    )
    table = pa.table({"k": texts, "y": places + np.arange(200_000) % 3.0})
    pq.write_table(table, here / "t.parquet", store_schema=False, compression="zstd")
    (here / "t.csv").write_bytes(b"," * 10_000_000 + b"\n1,2\n")
    (here / "q.csv").write_bytes(b'"a\nb"' + b"," * 10_000_000 + b"\n1,2\n")
    return [here / name for name in ("t.parquet", "t.csv", "q.csv")]


@pytest.fixture(scope="module")
def measurements(model, bomb_files, large_tables):
    good = bomb_files[0].parent / "good"
    good.write_bytes(model.data)
    commands = [("predict", file, TABLE) for file in bomb_files]
    commands += [("fit", file, "--target", "y", "--members", "5") for file in large_tables]
    commands.append((*commands[-3], "--out-of-core"))
    found = measured(("predict", good, TABLE), *commands)
    return dict(zip([*bomb_files, *large_tables, "blocks"], found, strict=True))


@needs_linux
def test_bombs_do_not_go_off(bomb_files, measurements):
    """The files have up to 67 MB, which are read, and would fill 160 MB to 4 GB by their own
    account.
    """
    for file in bomb_files:
        code, out, err, grown = measurements[file]
        assert (
            code == 1
            and out == ""
            and err.startswith(f"olsen: {file.name} ")
            and err.count("\n") == 1
        )
        assert "MemoryError" not in err and grown < 100, err
    largest = max(measurements[file][3] for file in bomb_files)
    print(f"bombs: {len(bomb_files)}, at most {largest} MB more")


@needs_linux
def test_tables_do_not_fill_the_memory(large_tables, measurements):
    parquet, *texts = (measurements[file] for file in large_tables)
    blocks = measurements["blocks"]
    assert blocks[0] == 0 and "2 columns of 0 and 1" in blocks[1] and blocks[3] < 600
    print(
        f"a Parquet bomb: {parquet[3]} MB more; headers of commas:"
        f" {max(grown for *_, grown in texts)} MB more"
    )
    assert large_tables[0].stat().st_size < 50_000
    assert parquet[0] == 0 and "2 columns of 0 and 1" in parquet[1] and parquet[3] < 600
    for code, _, err, grown in texts:
        assert code == 1 and "10,000,001 columns" in err and err.count("\n") == 1 and grown < 200


def test_no_array_is_made_of_memory_that_is_not_in_the_file(model, tmp_path):
    """Every type and every loader here is that of some node of a genuine file, but the pair is not."""
    from olsen import load

    path = tmp_path / "hostile.skops"
    n_columns = int(model.nodes[(*model.coef[:-1], "n_features_in_")]["content"])
    for loader in ("ListNode", "TupleNode", "DictNode", "ObjectNode"):
        path.write_bytes(model.replaced(model.coef, built(loader, "numpy.ndarray", [n_columns])))
        with pytest.raises(ValueError, match=rf"not trusted: numpy\.ndarray in a {loader}\."):
            load(path)


def test_nodes_of_one_object_say_the_same(model, tmp_path):
    """skops builds the first node of an id in the place of all others: coefficients could be other
    numbers.
    """
    from olsen import load

    path, coef = tmp_path / "hostile.skops", model.nodes[model.coef]
    others = [
        node for node in model.nodes.values() if "file" in node and node["file"] != coef["file"]
    ]
    path.write_bytes(model.replaced(model.coef, {**coef, "__id__": others[0]["__id__"]}))
    with pytest.raises(ValueError, match="nodes of the same object differ"):
        load(path)


def test_an_encoder_does_not_write_beside_its_columns(model, tmp_path):
    """scikit-learn and SciPy take the number of columns, and the codes of infrequent categories, as
    they come.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    import olsen

    X = np.repeat(np.arange(5.0), [9, 9, 9, 2, 1])[:, None]
    path, y = tmp_path / "m.skops", X[:, 0] ** 2
    pipeline = make_pipeline(
        OneHotEncoder(min_frequency=5), olsen.OLSEnsembleRegressor(5, random_state=0)
    ).fit(X, y)
    olsen.save(pipeline, path)
    np.testing.assert_array_equal(olsen.load(path).predict(X), pipeline.predict(X))
    genuine = Model(path.read_bytes())

    def replaced_array(name, array):
        node = next(
            node for place, node in genuine.nodes.items() if name in place and "file" in node
        )
        return archive_of({**genuine.parts, node["file"]: npy(array)})

    columns = next(
        place for place in genuine.nodes if place[-3:] == ("_n_features_outs", "content", 0)
    )
    for data in (
        genuine.replaced(columns, single("2")),
        replaced_array("_default_to_infrequent_mappings", np.array([0, 1, 2, 10**6, 10**6])),
        replaced_array("_infrequent_indices", np.array([-1, 4])),
        replaced_array("categories_", np.array([4.0, 3, 2, 1, 0])),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"m\.skops is damaged"):
            olsen.load(path)


def test_sparse_rows_do_not_point_beside_their_columns(tmp_path):
    """SciPy reads where they point to; given two numbers for its arrays, it makes a matrix of that
    size.
    """
    import olsen

    X = np.random.default_rng(0).standard_normal((20, 3)) * (np.arange(3) > 0)
    path = tmp_path / "m.skops"
    olsen.save(olsen.OLSEnsembleRegressor(5, random_state=0).fit(sp.csr_array(X), X[:, 1]), path)
    genuine = Model(path.read_bytes())
    arrays = next(place for place in genuine.nodes if place[-1:] == ("arg1",))
    file = genuine.nodes[(*arrays, "content", 1)]["file"]
    rows = np.load(io.BytesIO(genuine.parts[file]))
    for data in (
        archive_of({**genuine.parts, file: npy(rows + rows.dtype.type(20))}),
        archive_of({**genuine.parts, file: npy(rows - rows.dtype.type(1))}),
        genuine.replaced(arrays, built("TupleNode", "builtins.tuple", [20, 3])),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"m\.skops is damaged"):
            olsen.load(path)


def test_a_file_names_no_folder_of_pickles(model, tmp_path):
    """A pipeline with a memory would read them from there when it is fitted again."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import olsen

    X = np.random.default_rng(0).standard_normal((20, 3))
    path = tmp_path / "m.skops"
    steps = StandardScaler(), olsen.OLSEnsembleRegressor(5, random_state=0)
    olsen.save(make_pipeline(*steps, memory=str(tmp_path / "cache")).fit(X, X[:, 0]), path)
    assert olsen.load(path).memory is None
    genuine = Model(path.read_bytes())
    place = next(place for place in genuine.nodes if place[-1:] == ("memory",))
    path.write_bytes(genuine.replaced(place, single(json.dumps(str(tmp_path)))))
    with pytest.raises(ValueError, match="would read pickles"):
        olsen.load(path)
    inside = make_pipeline(make_pipeline(steps[0], memory=str(tmp_path / "cache")), steps[1]).fit(
        X, X[:, 0]
    )
    with pytest.raises(ValueError, match="would read pickles"):
        olsen.save(inside, path)


def test_a_newer_format_names_the_version_to_install(model, olsen, tmp_path):
    schema = copy.deepcopy(model.schema)
    schema["content"] |= {
        "format": single('"olsen model 3"'),
        "olsen": single('"3.1.4"'),
        "model": {"__class__": "Fit", "__module__": "olsen", "__loader__": "ObjectNode"},
    }
    path = tmp_path / "new.skops"
    path.write_bytes(archive_of({**model.parts, SCHEMA: json.dumps(schema)}))
    code, _, err = olsen("predict", path, TABLE)
    assert code == 1 and "olsen model 3" in err and "pip install 'olsen>=3.1.4'" in err


# Tables


NAMES = {
    "escape": "a\x1b]0;owned\x07\x1b[2J",
    "escape of eight bits": "a\x9b2Jb",
    "bidirectional": "a\u202egnp.exe\u2066",
    "zero": "a\x00b",
    "lines": "a\nolsen: all is well\r\u2028b",
    "long": "long" * 250_000,
    "script": (
        '</title></style><script>alert(1)</script><img src=x onerror=alert(1)>"\' onload="alert(1)'
    ),
    "tag characters": "a\U000e0041\ufeffb",
    "delete": "a\x7f\x08\x08b",
}


class Page(HTMLParser):
    """The elements and attributes of a page, as a browser would find them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.titles = Counter(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attributes}
        self.titles += [value for name, value in attributes if name == "title"]


def visible(name):
    """Every character that is not printable as its escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def is_harmless(text):
    return all(c.isprintable() or c == "\n" for c in text)


def hostile_table(path, name):
    """A table in which a column and a category have the name; its target begins with a y, and is
    returned.
    """
    a, b = np.random.default_rng(0).standard_normal((2, 60))
    categories = np.resize(np.array([name, "other"], dtype=object), 60).tolist()
    pq.write_table(pa.table({name: a, "b": b, "k": categories, f"y{name}": a + b}), path)
    return f"y{name}"


@pytest.fixture(scope="module")
def plain_report(tmp_path_factory):
    """Elements and attributes of reports of a table with harmless names: with a curve of errors
    over sizes, and with
    the weights of sampling schemes."""
    here, found = tmp_path_factory.mktemp("plain"), Page("")
    target = hostile_table(here / "t.parquet", "plain")
    for kind in ("adaptive", "ensemble"):
        fit = ["fit", str(here / "t.parquet"), "--target", target, "--model", kind]
        assert cli.main([*fit, "--report", str(here / "r.html"), "--force"]) == 0
        page = Page((here / "r.html").read_text())
        found.tags |= page.tags
        found.attributes |= page.attributes
    return found


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_shown_and_never_obeyed(kind, olsen, tmp_path, plain_report):
    name, path = NAMES[kind], tmp_path / "t.parquet"
    target = hostile_table(path, name)
    fit = ("fit", path, "--target", target, "--members", "5")
    code, out, err = olsen(*fit, "--out", tmp_path / "m.skops")
    assert (code, err) == (0, "") and is_harmless(out)
    assert max(map(len, out.splitlines())) < 250
    code, out, _ = olsen(*fit, "--json", "--report", tmp_path / "r.html")
    summary = json.loads(out)
    assert code == 0 and is_harmless(out) and summary["data"]["target"] == target
    assert {name, f"k_{name}"} <= set(summary["columns"]["name"])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    found = Page(page)
    assert is_harmless(page)
    assert set(found.tags) <= set(plain_report.tags) and found.attributes <= plain_report.attributes
    assert [title[:60] for title in found.titles].count(
        visible(target)[:60]
    ) == 1  # the others are those of columns
    code, out, err = olsen("predict", tmp_path / "m.skops", path, "--json")
    assert code == 0 and list(json.loads(out)) == [target] and is_harmless(out)


@pytest.mark.parametrize("kind", NAMES)
def test_messages_show_names_and_keep_to_one_line(kind, olsen, tmp_path):
    name, path = NAMES[kind], tmp_path / "t.parquet"
    target = hostile_table(path, name)
    for arguments in (
        ("--target", "nothing"),
        ("--target", "k"),
        ("--drop", f"{name[:90]} and more"),
    ):
        code, out, err = olsen("fit", path, "--target", target, *arguments)
        assert code in (1, 2) and out == "" and err.startswith("olsen: ") and err.count("\n") == 1
        assert is_harmless(err) and len(err) < 2100
    missing = pa.table({name: pa.array([1.0, None] * 10), "y": np.arange(20.0)})
    pq.write_table(missing, path)
    code, _, err = olsen("fit", path, "--target", "y")
    assert code == 1 and "10 cells missing" in err and is_harmless(err) and err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudoterminals")
def test_a_terminal_gets_no_control_characters_and_a_file_gets_the_name(
    olsen, tmp_path, monkeypatch, until_closed
):
    """Through a real pseudoterminal, and not through one."""
    name, path = NAMES["escape"], tmp_path / "t.parquet"
    target = hostile_table(path, name)
    assert (
        olsen("fit", path, "--target", target, "--members", "5", "--out", tmp_path / "m.skops")[0]
        == 0
    )
    assert olsen("predict", tmp_path / "m.skops", path)[1].startswith(f"{target}\n")
    ours, theirs = os.openpty()
    with open(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        assert cli.main(["predict", str(tmp_path / "m.skops"), str(path)]) == 0
        monkeypatch.undo()
    shown = until_closed(ours)
    assert (
        "\x1b" not in shown
        and "\x07" not in shown
        and shown.startswith(r"ya\x1b]0;owned\x07\x1b[2J")
    )


def csv_rows(n=60):
    return b"".join(b"%d,%d,%d\n" % (i % 7, i % 4, i % 5) for i in range(n))


TEXTS = {
    "header of invalid bytes, far in": (
        b"a" * 70_000 + b"\xff,b,y\n" + csv_rows(),
        "neither UTF-8 nor",
    ),
    "cells of invalid bytes, far in": (
        b"a,k,y\n" + b"1,x,2\n2,z,3\n" * 9000 + b"1,\xff,3\n",
        "neither UTF-8 nor",
    ),
    "a cell of 40 MB": (
        b"a,b,y\n" + b"1" * 40_000_000 + b",2,3\n" + csv_rows(),
        "cannot be read as a table",
    ),
    "one line": (b"a" * 20_000_000, "cannot be read as a table"),
    "a quotation mark left open": (b'a,"b,y\n' + csv_rows(50_000), "cannot be read as a table"),
    "zeros far in": (b"a,k,y\n" + b"1,x,2\n2,z,3\n" * 9000 + b"1,\x00,3\n", None),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_hostile_texts(kind, olsen, tmp_path):
    content, words = TEXTS[kind]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    code, out, err = olsen("fit", path, "--target", "y", "--members", "5")
    assert is_harmless(out + err)
    if words is not None:
        assert code == 1 and out == "" and words in err and err.count("\n") == 1
    else:
        assert (code, err) == (0, "")


def test_damaged_parquet_is_refused_or_read(olsen, seed, tmp_path):
    """Cut, shortened inside, and with flipped bits: one line at most, in memory and in blocks."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 2))
    columns = {"a": X[:, 0], "b": X[:, 1], "k": ["u", "v", "w"] * 20, "y": X.sum(axis=1)}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    whole, found = path.read_bytes(), Counter()
    for i in range(60):
        data = bytearray(whole)
        if i % 3 == 0:
            data = data[: rng.integers(5, len(data))]
        elif i % 3 == 1:
            data = (
                data[: rng.integers(5, len(data) // 2)]
                + data[-int(rng.integers(8, len(data) // 2)) :]
            )
        else:
            for place in rng.integers(4, len(data), size=3):
                data[place] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(data))
        options = ("--out-of-core",) if i % 2 else ()
        code, out, err = olsen("fit", path, "--target", "y", "--members", "3", *options)
        assert code in (0, 1, 2) and is_harmless(out + err)
        assert (err == "") if code == 0 else (err.startswith("olsen: ") and err.count("\n") == 1)
        found[code] += 1
    print(f"damaged Parquet: {found[1] + found[2]} refused, {found[0]} read")
    assert found[1] > 30
