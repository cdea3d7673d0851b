"""Hostile files: damaged, lying, oversized, or full of control characters. None does more than end
a command.

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
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from olsen import OLSEnsembleRegressor, cli, load, save

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
skops_io = pytest.importorskip("skops.io")
pytest.importorskip("pandas")

from fuzz.model_files import edited  # noqa: E402

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
    """Yield the path and the node of every description of something to be built."""
    if isinstance(node, dict) and "__loader__" in node:
        yield path, node
    if isinstance(node, (dict, list)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from nodes_of(child, (*path, key))


def changed(node, path, new):
    """Copy of a node with a new node at the path."""
    if not path:
        return new
    key, *rest_of_path = path
    child = node.get(key) if isinstance(node, dict) else node[key]
    copied = copy.copy(node)
    copied[key] = changed(child, rest_of_path, new)
    return copied


class Model:
    """A model file, and changed copies of it."""

    def __init__(self, data):
        self.data = data
        self.parts = parts_of(data)
        self.schema = json.loads(self.parts[SCHEMA])
        self.nodes = dict(nodes_of(self.schema))

    def path_to(self, *end):
        """Path of the first node whose path has the end."""
        return next(path for path in self.nodes if path[-len(end) :] == end)

    def replaced(self, path, node):
        return archive_of({**self.parts, SCHEMA: json.dumps(changed(self.schema, path, node))})

    def with_part(self, name, content):
        return archive_of({**self.parts, name: content})


def node_of(loader, kind, content=None, **fields):
    module, name = kind.rsplit(".", 1)
    described = {"__class__": name, "__module__": module, "__loader__": loader}
    return {**described, "content": content, **fields}


def single(text):
    return node_of("JsonNode", "builtins.str", text, is_json=True)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.skops"
    options = ["--target", "yield", "--out", str(path), "--missing", "mean"]
    assert cli.main(["fit", str(TABLE), *options]) == 0
    return Model(path.read_bytes())


# Kinds of hostile models: pairs of a name and the bytes


def damaged_archives(rng, model):
    data = model.data
    for i in range(40):
        flipped = bytearray(data)
        # the second half lies in the list of parts and the end, where every bit means something
        position = rng.integers(len(data)) if i < 20 else -int(rng.integers(1, 2000))
        flipped[position] ^= 1 << rng.integers(8)
        yield f"bit {i}", bytes(flipped)
    for length in (0, 1, 22, len(data) - 1, *rng.integers(2, len(data), size=12)):
        yield f"first {length}", data[:length]
        yield f"without {length // 2} to {length}", data[: length // 2] + data[length:]
    yield "extended", data + b"more"
    yield "text", b"hello"
    yield "another model", skops_io.dumps(Ridge())
    path = next(path for path, node in model.nodes.items() if "file" in node)
    for name in ("../../outside.npy", "/etc/passwd", "C:\\1.npy", "1.npy\x1b[2J", "x" * 60_000):
        yield f"extra {name[:20]!r}", model.with_part(name, b"x")
        yield f"node of {name[:20]!r}", model.replaced(path, {**model.nodes[path], "file": name})
    pickled = io.BytesIO()
    np.save(pickled, np.array([os.getcwd], dtype=object), allow_pickle=True)
    yield "pickle", model.with_part(model.nodes[path]["file"], pickled.getvalue())


def edited_models(rng, model):
    """Random edits of values, nodes, arrays and headers."""
    for _ in range(150):
        data, edits = edited(rng, model.data)
        yield edits, data


def foreign_types(model, canary):
    arguments = node_of("TupleNode", "builtins.tuple", [single(json.dumps(f"touch {canary}"))])
    formatted = {"func": "format", "obj": single('"os"')}
    hostile = {
        "function": node_of("FunctionNode", f"{os.system.__module__}.system", {}),
        "reduce": node_of("ReduceNode", "os.system", arguments, __reduce__={"args": arguments}),
        "method": node_of("MethodNode", "builtins.str", formatted),
        "object": node_of("ObjectNode", "subprocess.Popen", arguments),
        "scikit-learn": node_of("ObjectNode", "sklearn.decomposition._pca.PCA", single("null")),
        "escape": node_of("TypeNode", "os.\x1b[2J\nolsen: all is well"),
        "long": node_of("TypeNode", "os." + "x" * 1_000_000),
        "loader": node_of("os.system", "builtins.str", "touch"),
    }
    paths = [
        ("content", "sklearn"),
        ("content", "model"),
        ("key_types",),
        ("content", "model", "content"),
    ]
    for name, path in product(hostile, paths):
        yield f"{name} as {path[-1]}", model.replaced(path, hostile[name])


def bombs(model):
    """Small files that would be large in memory if their descriptions were believed."""
    parts = model.parts
    coef = model.nodes[model.path_to("coef_")]
    file = coef["file"]
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        zeros = npy(np.zeros(20_000_000 if method == zipfile.ZIP_DEFLATED else 200_000))
        yield archive_of({**parts, file: zeros}, compression=method)
    yield archive_of({**parts, **{f"{i}.npy": b"" for i in range(20_000)}})
    for schema in (
        b'{"content":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 1_000_000,
        b"[" + b"[]," * 3_000_000 + b"1]",
        b" " * ((1 << 26) + 1),
    ):
        yield model.with_part(SCHEMA, schema)
    path = ("content", "sklearn")
    # skops reads the part of a node of id 0 again for every such node
    for ids in (range(500), [0] * 500):
        nodes = [{**coef, "file": "z", "__id__": i} for i in ids]
        schema = json.dumps(changed(model.schema, path, built("ListNode", "builtins.list", nodes)))
        yield archive_of({**parts, "z": npy(np.zeros(1_000_000)), SCHEMA: schema})
    header = npy(np.zeros(0, "S1")).replace(b"S1", b"S0")
    empty = header.replace(b"(0,), }       ", b"(20000000,), }")
    items = node_of("NdArrayNode", "builtins.list", type="numpy", file="e")
    schema = json.dumps(changed(model.schema, path, items))
    yield archive_of({**parts, "e": empty, SCHEMA: schema})
    yield model.replaced(path, built("ListNode", "numpy.ndarray", [200_000_000]))
    nested = built("ListNode", "builtins.list", [1])
    for level in range(60):  # each list holds the one inside twice, the second time by its id alone
        nested["__id__"] = level + 1
        nested = built("ListNode", "builtins.list", [nested, {**nested, "content": []}])
    yield model.replaced(path, nested)


def built(loader, kind, values):
    """A node that builds a type from numbers, or from nodes."""
    content = [single(str(value)) if isinstance(value, int) else value for value in values]
    return node_of(loader, kind, content)


def run_command(*command):
    """Exit code, output and error stream of a command in this process."""
    out = io.StringIO()
    err = io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with streams[0], streams[1], warnings.catch_warnings(action="ignore"):
        code = cli.main([str(word) for word in command])
    return code, out.getvalue(), err.getvalue()


def outcomes(files, path):
    """Number of files that were refused in one line (1), and that predicted (0)."""
    counts = Counter()
    for i, (name, data) in enumerate(files):
        path.write_bytes(data)
        code, out, err = run_command("predict", path, TABLE, "--interval", "0.9")
        counts[code] += 1
        if code == 0:
            n_predictions = len(np.genfromtxt(io.StringIO(out), delimiter=",", skip_header=1))
            assert n_predictions == 60, name
        results = [(code, out, err)]
        if i % 4 == 0:
            results.append(run_command("show", path))
        for code, out, err in results:
            if code:
                assert code == 1 and out == "", (name, err)
                assert err.startswith("olsen: ") and err.count("\n") == 1, (name, err)
                assert err[:-1].isprintable() and len(err) < 1000, (name, err)
    return counts


@pytest.mark.parametrize("kind", [damaged_archives, edited_models])
def test_hostile_models_are_refused_in_one_line_or_harmless(kind, seed, model, tmp_path):
    rng = np.random.default_rng([seed, 3])
    counts = outcomes(kind(rng, model), tmp_path / "hostile.skops")
    assert counts[1] >= 20


def test_foreign_types_are_not_built(model, tmp_path):
    canary = tmp_path / "canary"
    counts = outcomes(foreign_types(model, canary), tmp_path / "hostile.skops")
    assert counts == {1: 32} and not canary.exists()


@pytest.mark.parametrize("version", ["olsen model 0", "olsen model", "another", 1, None])
def test_other_formats_are_refused(version, model, tmp_path):
    path = tmp_path / "hostile.skops"
    path.write_bytes(model.replaced(("content", "format"), single(json.dumps(version))))
    with pytest.raises(ValueError, match=r"hostile\.skops"):
        load(path)


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
    """Exit code, output, error stream and growth in MB of commands, which one other process runs."""
    text = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    control, results = json.loads(done.stdout)
    assert 95 <= control <= 110  # the measurement of 100 MB
    return results


needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux"
)


@pytest.fixture(scope="module")
def bomb_files(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    for i, data in enumerate(bombs(model)):
        (folder / f"{i}.skops").write_bytes(data)
    return sorted(folder.glob("*.skops"))


@pytest.fixture(scope="module")
def large_tables(tmp_path_factory):
    """A string of 100 kB in 200 000 rows, 20 kB on disk and 20 GB written out; two headers of
    commas.
    """
    folder = tmp_path_factory.mktemp("tables")
    kinds = np.arange(200_000) % 2
    levels = ["x" * 100_000, "y" * 100_000]
    strings = pa.DictionaryArray.from_arrays(pa.array(kinds, "int32"), levels)
    table = pa.table({"k": strings, "y": kinds + np.arange(200_000) % 3.0})
    pq.write_table(table, folder / "t.parquet", store_schema=False, compression="zstd")
    (folder / "t.csv").write_bytes(b"," * 10_000_000 + b"\n1,2\n")
    (folder / "q.csv").write_bytes(b'"a\nb"' + b"," * 10_000_000 + b"\n1,2\n")
    return [folder / name for name in ("t.parquet", "t.csv", "q.csv")]


@pytest.fixture(scope="module")
def measurements(model, bomb_files, large_tables):
    genuine = bomb_files[0].parent / "genuine"
    genuine.write_bytes(model.data)
    commands = [("predict", file, TABLE) for file in bomb_files]
    commands += [("fit", file, "--target", "y", "--members", "5") for file in large_tables]
    commands.append((*commands[-3], "--out-of-core"))
    results = measured(("predict", genuine, TABLE), *commands)
    return dict(zip([*bomb_files, *large_tables, "blocks"], results, strict=True))


@needs_linux
def test_bombs_are_refused_in_little_memory(bomb_files, measurements):
    """Files of up to 67 MB, which are read, would fill 160 MB to 4 GB by their own account."""
    for file in bomb_files:
        code, out, err, growth = measurements[file]
        assert (code, out) == (1, "")
        assert err.startswith(f"olsen: {file.name} ") and err.count("\n") == 1
        assert "MemoryError" not in err and growth < 100, err


@needs_linux
def test_tables_do_not_fill_the_memory(large_tables, measurements):
    parquet, *headers = (measurements[file] for file in large_tables)
    assert large_tables[0].stat().st_size < 50_000
    for code, out, _, growth in (parquet, measurements["blocks"]):
        assert code == 0 and "2 columns of 0 and 1" in out and growth < 600
    for code, _, err, growth in headers:
        assert code == 1 and "10,000,001 columns" in err and err.count("\n") == 1 and growth < 200


def test_no_array_is_made_of_memory_that_is_not_in_the_file(model, tmp_path):
    """Type and loader occur in genuine files, but not the pair."""
    path = tmp_path / "hostile.skops"
    coef = model.path_to("coef_")
    n_columns = int(model.nodes[(*coef[:-1], "n_features_in_")]["content"])
    for loader in ("ListNode", "TupleNode", "DictNode", "ObjectNode"):
        path.write_bytes(model.replaced(coef, built(loader, "numpy.ndarray", [n_columns])))
        with pytest.raises(ValueError, match=rf"not trusted: numpy\.ndarray in a {loader}\."):
            load(path)


def test_nodes_of_one_object_must_agree(model, tmp_path):
    """skops builds the first node of an id in the place of all others: coefficients could be
    numbers of another node.
    """
    path = tmp_path / "hostile.skops"
    coef = model.nodes[model.path_to("coef_")]
    other_node = next(
        node for node in model.nodes.values() if node.get("file", coef["file"]) != coef["file"]
    )
    forged = {**coef, "__id__": other_node["__id__"]}
    path.write_bytes(model.replaced(model.path_to("coef_"), forged))
    with pytest.raises(ValueError, match="nodes of the same object differ"):
        load(path)


def assert_damaged(path, contents):
    for data in contents:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"m\.skops is damaged"):
            load(path)


def test_an_encoder_does_not_write_outside_its_columns(tmp_path):
    """scikit-learn and SciPy trust the number of columns and the codes of infrequent categories."""
    X = np.repeat(np.arange(5.0), [9, 9, 9, 2, 1])[:, None]
    path = tmp_path / "m.skops"
    encoder = OneHotEncoder(min_frequency=5)
    pipeline = make_pipeline(encoder, OLSEnsembleRegressor(5, random_state=0))
    save(pipeline.fit(X, X[:, 0] ** 2), path)
    np.testing.assert_array_equal(load(path).predict(X), pipeline.predict(X))
    genuine = Model(path.read_bytes())

    def with_array(name, array):
        node = next(
            node
            for path_of_node, node in genuine.nodes.items()
            if name in path_of_node and "file" in node
        )
        return genuine.with_part(node["file"], npy(array))

    n_columns = genuine.path_to("_n_features_outs", "content", 0)
    assert_damaged(
        path,
        [
            genuine.replaced(n_columns, single("2")),
            with_array("_default_to_infrequent_mappings", np.array([0, 1, 2, 10**6, 10**6])),
            with_array("_infrequent_indices", np.array([-1, 4])),
            with_array("categories_", np.array([4.0, 3, 2, 1, 0])),
        ],
    )


def test_sparse_rows_do_not_point_outside_their_columns(tmp_path):
    """SciPy reads where indices point; two numbers for its arrays make a matrix of that size."""
    X = np.random.default_rng(0).standard_normal((20, 3)) * (np.arange(3) > 0)
    path = tmp_path / "m.skops"
    save(OLSEnsembleRegressor(5, random_state=0).fit(sp.csr_array(X), X[:, 1]), path)
    genuine = Model(path.read_bytes())
    arrays = genuine.path_to("arg1")
    file = genuine.nodes[(*arrays, "content", 1)]["file"]
    rows = np.load(io.BytesIO(genuine.parts[file]))
    assert_damaged(
        path,
        [
            genuine.with_part(file, npy(rows + rows.dtype.type(20))),
            genuine.with_part(file, npy(rows - rows.dtype.type(1))),
            genuine.replaced(arrays, built("TupleNode", "builtins.tuple", [20, 3])),
        ],
    )


def test_a_file_names_no_folder_of_pickles(tmp_path):
    """A pipeline with a memory would read pickles from there when it is fitted again."""
    X = np.random.default_rng(0).standard_normal((20, 3))
    path = tmp_path / "m.skops"
    cache = str(tmp_path / "cache")
    ensemble = OLSEnsembleRegressor(5, random_state=0)
    save(make_pipeline(StandardScaler(), ensemble, memory=cache).fit(X, X[:, 0]), path)
    assert load(path).memory is None
    genuine = Model(path.read_bytes())
    path.write_bytes(genuine.replaced(genuine.path_to("memory"), single(json.dumps(cache))))
    with pytest.raises(ValueError, match="would read pickles"):
        load(path)
    nested = make_pipeline(make_pipeline(StandardScaler(), memory=cache), ensemble)
    with pytest.raises(ValueError, match="would read pickles"):
        save(nested.fit(X, X[:, 0]), path)


def test_a_newer_format_names_the_version_to_install(model, olsen_refuses, tmp_path):
    schema = copy.deepcopy(model.schema)
    schema["content"] |= {
        "format": single('"olsen model 3"'),
        "olsen": single('"3.1.4"'),
        "model": {"__class__": "Fit", "__module__": "olsen", "__loader__": "ObjectNode"},
    }
    path = tmp_path / "new.skops"
    path.write_bytes(model.with_part(SCHEMA, json.dumps(schema)))
    olsen_refuses("predict", path, TABLE, words=["olsen model 3", "pip install 'olsen>=3.1.4'"])


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
        self.tags = Counter()
        self.attributes = set()
        self.titles = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attributes}
        self.titles += [value for name, value in attributes if name == "title"]


def visible(name):
    """The name with escapes for characters that are not printable."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def is_harmless(text):
    return all(c.isprintable() or c == "\n" for c in text)


def hostile_table(path, name):
    """Write a table in which a column and a category have the name; return its target."""
    a, b = np.random.default_rng(0).standard_normal((2, 60))
    categories = np.resize(np.array([name, "other"], dtype=object), 60).tolist()
    pq.write_table(pa.table({name: a, "b": b, "k": categories, f"y{name}": a + b}), path)
    return f"y{name}"


@pytest.fixture(scope="module")
def plain_report(tmp_path_factory):
    """Elements and attributes of reports of both models for a table with harmless names."""
    folder = tmp_path_factory.mktemp("plain")
    report = Page("")
    target = hostile_table(folder / "t.parquet", "plain")
    for kind in ("adaptive", "ensemble"):
        fit = ["fit", str(folder / "t.parquet"), "--target", target, "--model", kind]
        assert cli.main([*fit, "--report", str(folder / "r.html"), "--force"]) == 0
        page = Page((folder / "r.html").read_text())
        report.tags |= page.tags
        report.attributes |= page.attributes
    return report


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_printed_and_never_obeyed(kind, olsen, tmp_path, plain_report):
    name = NAMES[kind]
    path = tmp_path / "t.parquet"
    target = hostile_table(path, name)
    fit = ("fit", path, "--target", target, "--members", "5")
    code, out, err = olsen(*fit, "--out", tmp_path / "m.skops")
    assert (code, err) == (0, "") and is_harmless(out)
    assert max(map(len, out.splitlines())) < 250
    code, out, _ = olsen(*fit, "--json", "--report", tmp_path / "r.html")
    summary = json.loads(out)
    assert code == 0 and is_harmless(out) and summary["data"]["target"] == target
    assert {name, f"k: {name}"} <= set(summary["columns"]["name"])
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(html)
    assert is_harmless(html)
    assert set(page.tags) <= set(plain_report.tags) and page.attributes <= plain_report.attributes
    # the other titles are those of columns
    assert [title[:60] for title in page.titles].count(visible(target)[:60]) == 1
    code, out, err = olsen("predict", tmp_path / "m.skops", path, "--json")
    assert code == 0 and is_harmless(out)
    assert list(json.loads(out)) == [f"predicted_{target}", "far_row"]


@pytest.mark.parametrize("kind", NAMES)
def test_messages_with_names_are_one_line(kind, olsen, olsen_refuses, tmp_path):
    name = NAMES[kind]
    path = tmp_path / "t.parquet"
    target = hostile_table(path, name)
    for arguments in (
        ("--target", "missing"),
        ("--target", "k"),
        ("--drop", f"{name[:90]} and more"),
    ):
        code, out, err = olsen("fit", path, "--target", target, *arguments)
        assert code in (1, 2) and out == "" and err.startswith("olsen: ") and err.count("\n") == 1
        assert is_harmless(err) and len(err) < 2100
    missing = pa.table({name: pa.array([1.0, None] * 10), "y": np.arange(20.0)})
    pq.write_table(missing, path)
    assert is_harmless(olsen_refuses("fit", path, target="y", words="10 cells missing"))


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudoterminals")
def test_a_terminal_gets_no_control_characters_and_a_file_gets_the_name(
    olsen, tmp_path, monkeypatch, until_closed
):
    path = tmp_path / "t.parquet"
    target = hostile_table(path, NAMES["escape"])
    model_file = tmp_path / "m.skops"
    assert olsen("fit", path, target=target, members=5, out=model_file)[0] == 0
    assert olsen("predict", model_file, path)[1].startswith(f"predicted_{target},far_row\n")
    ours, theirs = os.openpty()
    with open(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        assert cli.main(["predict", str(model_file), str(path)]) == 0
        monkeypatch.undo()
    printed = until_closed(ours)
    assert printed.startswith(r"predicted_ya\x1b]0;owned\x07\x1b[2J")
    assert "\x1b" not in printed and "\x07" not in printed


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
def test_hostile_text_files_are_refused_or_read(kind, olsen, olsen_refuses, tmp_path):
    content, words = TEXTS[kind]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    if words is not None:
        assert is_harmless(olsen_refuses("fit", path, target="y", members=5, words=words))
    else:
        code, out, err = olsen("fit", path, target="y", members=5)
        assert (code, err) == (0, "") and is_harmless(out)


def test_damaged_parquet_is_refused_or_read(olsen, seed, tmp_path):
    """Cut, shortened inside, and with flipped bits: one line at most, in memory and in blocks."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 2))
    columns = {"a": X[:, 0], "b": X[:, 1], "k": ["u", "v", "w"] * 20, "y": X.sum(axis=1)}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    genuine = path.read_bytes()
    counts = Counter()
    for i in range(60):
        data = bytearray(genuine)
        half = len(data) // 2
        if i % 3 == 0:
            data = data[: rng.integers(5, len(data))]
        elif i % 3 == 1:
            data = data[: rng.integers(5, half)] + data[-int(rng.integers(8, half)) :]
        else:
            for position in rng.integers(4, len(data), size=3):
                data[position] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(data))
        options = ("--out-of-core",) if i % 2 else ()
        code, out, err = olsen("fit", path, *options, target="y", members=3)
        assert code in (0, 1, 2) and is_harmless(out + err)
        assert (err == "") if code == 0 else (err.startswith("olsen: ") and err.count("\n") == 1)
        counts[code] += 1
    assert counts[1] + counts[2] > 30
