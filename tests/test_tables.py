"""Tables as people have them: each gives the right numbers, or one line that names the place and the way out.

All files are made first and given to the real command in one process; what it said is looked at afterwards.
"""

import bz2
import datetime
import decimal
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import sqlite3
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from dataclasses import replace

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")

from olsen.cli.tables import Encoding, TableError, learn_table, read_table, texts_of  # noqa: E402

N = 40
RNG = np.random.default_rng(0)
A = np.round(RNG.uniform(-9000, 9000, N), 2)
B = np.round(RNG.uniform(0, 90, N), 1)
Y = np.round(A / 1000 + B / 10 + RNG.standard_normal(N), 2)
PLAIN = pa.table({"a": A, "b": B, "y": Y})
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=9 * i) for i in range(N)]


def point(value):
    return repr(float(value))


def lines(a=point, b=point, y=point, sep=",", header=("a", "b", "y"), end=""):
    """The table as lines of text, each of its columns written by a function."""
    cells = zip(map(a, A), map(b, B), map(y, Y), strict=True)
    return [sep.join(header) + end, *(sep.join(row) + end for row in cells)]


def text(found, line_end="\n", last="\n", encoding="utf-8"):
    return (line_end.join(found) + last).encode(encoding)


def with_column(values, name="c"):
    """The table with one more column of texts, before the target."""
    rows = zip(map(point, A), values, map(point, Y), strict=True)
    return text([f"a,{name},y", *(",".join(row) for row in rows)])


def spoiled(number, line):
    """The table with one of its lines replaced, counted from one."""
    found = lines()
    found[number - 1] = line
    return text(found)


def as_parquet(columns):
    file = io.BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), file)
    return file.getvalue()


def as_arrow(stream):
    file = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, PLAIN.schema) as writer:
        writer.write_table(PLAIN)
    return file.getvalue()


def as_feather():
    file = io.BytesIO()
    feather.write_feather(PLAIN, file)
    return file.getvalue()


def as_zip(parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def as_tar(content):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("t.csv")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def as_database():
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (a real, y real)")
        return database.serialize()


def as_npy():
    file = io.BytesIO()
    np.save(file, np.ones((5, 3)))
    return file.getvalue()


def zstd(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


def comma(value):
    return point(value).replace(".", ",")


def german(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


TEXT = text(lines())
PARQUET = as_parquet(PLAIN)


# Tables that are read: name of the file -> content, and words of the message that says what was done, if any. All of
# them hold the same numbers, so all fits are one fit.

READ = {
    "plain.csv": (TEXT, None),
    "no line end.csv": (text(lines(), last=""), None),
    "windows.csv": (text(lines(), "\r\n", "\r\n"), None),
    "old mac.csv": (text(lines(), "\r", "\r"), None),
    "blank lines.csv": (text(["", *lines(), "", ""], "\n\n"), None),
    "mark.csv": (b"\xef\xbb\xbf" + TEXT, None),
    "quoted.csv": (text(lines(a=lambda v: f'"{v}"', header=('"a"', "b", "y"))), None),
    "spaces around.csv": (text(lines(sep=" , ")), None),
    "semicolons.csv": (text(lines(comma, comma, comma, ";")), "semicolons, decimals by a comma"),
    "tabs.txt": (text(lines(sep="\t")), "separated by tabs"),
    "both.txt": (text(lines(a=comma, sep="\t")), "decimals by a comma in 1 column ('a'): "),
    "bars.txt": (text(lines(sep="|")), "separated by bars"),
    "says separator.csv": (text(["sep=;", *lines(sep=";")]), "line 1, 'sep=;'"),
    "comments.csv": (text(["# from the field", "# 2024, second run", *lines()]), "lines 1 to 2 above the header"),
    "one comment.csv": (text(["# made by hand", "", *lines()]), "line 1 above the header begins with #"),
    "header as comment.csv": (text([f"# {lines()[0]}", *lines()[1:]]), "its first column is called 'a'"),
    "trailing.csv": (text(lines(end=",")), "lines end with a separator; 1 empty column"),
    "two trailing.csv": (text(lines(end=",,")), "2 empty columns"),
    "row names.csv": (text([f'"",{lines()[0]}', *(f'"r{i}",{v}' for i, v in enumerate(lines()[1:]))]), "as row names"),
    "scientific.csv": (text(lines(a=lambda v: f"{v:.6e}")), None),
    "packed.csv.gz": (gzip.compress(TEXT), None),
    "packed.csv.bz2": (bz2.compress(TEXT), None),
    "packed.csv.zst": (zstd(TEXT), None),
    "packed, by another name.csv": (gzip.compress(TEXT), None),
    "two parts.gz": (gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:]), None),
    "not packed.csv.gz": (TEXT, None),
    "parquet.gz": (gzip.compress(PARQUET), None),
    "table.parquet": (PARQUET, None),
    "parquet.csv": (PARQUET, None),
    "text.parquet": (TEXT, None),
    "table.arrow": (as_arrow(stream=False), None),
    "stream.arrows": (as_arrow(stream=True), None),
    "table.feather": (as_feather(), None),
    "percent.csv": (text(lines(b=lambda v: f"{v} %")), "column 'b' holds percentages, read as numbers"),
    "percent comma.csv": (text(lines(comma, lambda v: f"{comma(v)}%", comma, ";")), "holds percentages"),
    "windows.txt": (b"# caf\xe9\n" + text(lines(german, comma, comma, ";"), encoding="cp1252"), "read as Windows-1252"),
    "thousands.csv": (text(lines(a=lambda v: f'"{v:,.2f}"')), "'a' holds numbers as text"),
    "narrow spaces.csv": (text(lines(a=lambda v: f"{v:,.2f}".replace(",", "\u202f"))), "'a' holds numbers as text"),
    "minus.csv": (text(lines(a=lambda v: point(v).replace("-", "\u2212"))), "'a' holds numbers as text"),
    "texts.parquet": (as_parquet({"a": [point(v) for v in A], "b": B, "y": Y}), "'a' holds numbers as text"),
    "dictionary.parquet": (
        as_parquet({"a": pa.array([point(v) for v in A]).dictionary_encode(), "b": B, "y": Y}),
        "'a' holds numbers as text",
    ),
    "decimals.parquet": (as_parquet({"a": [decimal.Decimal(point(v)) for v in A], "b": B, "y": Y}), None),
    "long texts.parquet": (
        as_parquet({"a": pa.array([point(v) for v in A], pa.large_string()), "b": B, "y": Y}),
        "'a' holds numbers as text",
    ),
}  # fmt: skip


# Tables that are refused: name of the file -> content, words that must be said, words that must not

NO_DROP = ("--drop",)
REFUSED = {
    "records.json": (b'[{"a": 1, "y": 2}, {"a": 2, "y": 3}]', ["records.json is JSON", "CSV or Parquet"], ()),
    "object.csv": (b'\n {"a": [1, 2], "y": [3, 4]}', ["object.csv is JSON"], ()),
    "lines.jsonl": (b'{"a": 1, "y": 2}\n{"a": 2, "y": 3}\n', ["lines.jsonl is JSON"], ()),
    "arrays.json": (b"[[1, 2], [3, 4]]", ["arrays.json is JSON"], ()),
    "page.csv": (b"<!DOCTYPE html>\n<html><table><tr><td>1</table>", ["page.csv is a web page (HTML)", "CSV"], ()),
    "feed.xml": (b'<?xml version="1.0"?><rows/>', ["feed.xml is XML"], ()),
    "old.feather": (b"FEA1" + bytes(40), ["old.feather is neither text", "Parquet"], ()),
    "paper.pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", ["paper.pdf is a PDF document"], ()),
    "data.db": (as_database(), ["data.db is neither text"], ()),
    "array.npy": (as_npy(), ["array.npy is neither text"], ()),
    "frame.pkl": (pickle.dumps({"a": [1]}), ["frame.pkl is neither text"], ()),
    "old.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), ["old.xls is a spreadsheet", ".xlsx or CSV"], ()),
    "open office.ods": (as_zip({"mimetype": "x", "content.xml": "<a/>"}), ["spreadsheet", "CSV"], ()),
    "several.zip": (as_zip({"a.csv": TEXT}), ["several.zip is a zip archive ('a.csv')", "unpack"], ()),
    "broken.zip": (as_zip({"a.csv": TEXT})[:60], ["broken.zip", "CSV"], ()),
    "model.csv": (as_zip({"schema.json": "{}"}), ["model.csv looks like a model"], ()),
    "files.tar": (as_tar(TEXT), ["files.tar is neither text"], ()),
    "files.tar.gz": (gzip.compress(as_tar(TEXT)), ["files.tar.gz is neither text"], ()),
    "packed.xz": (lzma.compress(TEXT), ["packed.xz is neither text"], ()),
    "twice.gz": (gzip.compress(bz2.compress(TEXT)), ["twice.gz is compressed twice"], ()),
    "cut.gz": (gzip.compress(TEXT)[:-20], ["cut.gz is a damaged gzip file"], ()),
    "flipped.zst": (zstd(TEXT)[:30] + b"\xff" + zstd(TEXT)[31:], ["flipped.zst is a damaged zstd file"], ()),
    "nothing.gz": (gzip.compress(b""), ["nothing.gz is empty"], ()),
    "nothing.csv": (b"\xef\xbb\xbf\n", ["nothing.csv is empty"], ()),
    "wide.csv": (TEXT.decode().encode("utf-16"), ["wide.csv is encoded as UTF-16", "UTF-8"], ()),
    "wide, no mark.csv": (TEXT.decode().encode("utf-16-le"), ["is neither text", "UTF-8"], ()),
    "wide, big end first.csv": (TEXT.decode().encode("utf-16-be"), ["is neither text", "UTF-8"], ()),
    "zero.csv": (spoiled(7, "1,2\x00,3"), ["line 7 of zero.csv holds a zero byte (NUL)"], ()),
    "bytes.csv": (bytes(range(1, 256)) + bytes(300), ["bytes.csv is neither text"], ()),
    "picture.csv": (b"\x89PNG\r\n\x1a\n" + bytes(20), ["picture.csv is neither text"], ()),
    "pointer.csv": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["Git LFS", "git lfs pull"], ()),
    "cut.parquet": (PARQUET[:-30], ["cut.parquet is a damaged Parquet file", "get it again, or write it anew"], ()),
    "cut.arrow": (as_arrow(stream=False)[:-30], ["cut.arrow is a damaged Arrow file"], ()),
    "cut.arrows": (as_arrow(stream=True)[:-300], ["cut.arrows is a damaged Arrow file"], ()),
    "header only.csv": (b"a,b,y\n", ["header only.csv has a header but no rows"], ()),
    "no header.csv": (text(lines()[1:]), ["first line of no header.csv holds numbers only"], ()),
    "comments only.csv": (b"# one\n# two\n", ["comments only.csv holds comments only"], ()),
    "few cells.csv": (spoiled(7, "1,2"), ["few cells.csv", "line 7 has 2 cells, the header has 3"], ()),
    "many cells.csv": (spoiled(9, "1,2,3,4,5"), ["many cells.csv", "line 9 has 5 cells"], ()),
    "below comments.csv": (b"# one\n# two\n" + spoiled(7, "1,2"), ["line 9 has 2 cells"], ()),
    "comment inside.csv": (spoiled(5, "# paused"), ["line 5 has 1 cell", "remove that line"], ()),
    "trailing once.csv": (spoiled(4, "1,2,3,"), ["line 4 has 4 cells", "ends with a separator too many"], ()),
    "trailing in rows.csv": (
        text([lines()[0], *lines(end=",")[1:]]), ["line 2 has 4 cells", "ends with a separator too many"], ()),
    "open quote.csv": (spoiled(6, '1,"2,3'), ["line 6 has 2 cells", "quotation mark"], ()),
    "open quote, last.csv": (spoiled(N + 1, '1,"2,3'), [f"line {N + 1} has 2 cells", "quotation mark"], ()),
    "open quote, target.csv": (spoiled(6, '1,2,"3'), ["'y' holds '3", "in row 5", "quotation mark"], NO_DROP),
    "title.csv": (text(["Harvest of the year", *lines()]), ["line 2 has 3 cells", "title"], ()),
    "spaces.txt": (text(lines(sep=" ")), ["spaces.txt", "separated by spaces"], ()),
    "unnamed.csv": (text(lines(header=("a", "", "y"))), ["column 2 of unnamed.csv (after 'a') has no name"], ()),
    "doubled.csv": (text(lines(header=("a", "a", "y"))), ["several columns named 'a'", "rename"], ()),
    "iso dates.csv": (
        with_column([d.isoformat() for d in DAYS], "day"), ["'day' holds dates", "--dates 'day'", "--drop 'day'"], ()),
    "times.csv": (with_column([f"{d}T10:00:00" for d in DAYS], "at"), ["'at' holds dates", "--dates 'at'"], ()),
    "german dates.csv": (
        with_column([d.strftime("%d.%m.%Y") for d in DAYS], "tag"), ["'tag' holds dates", "--dates 'tag'"], ()),
    "american dates.csv": (
        with_column([d.strftime("%m/%d/%Y") for d in DAYS], "day"), ["'day' holds dates", "--dates 'day'"], ()),
    "which is the day.csv": (
        with_column([f"0{i % 9 + 1}/05/2024" for i in range(N)], "day"),
        ["'day' holds dates such as '01/05/2024'", "cannot be told apart", "write them as 2024-12-31", "--drop 'day'"],
        ["turn them into days"]),
    "clock.csv": (with_column([f"{i % 24:02}:30" for i in range(N)], "at"), ["'at' holds dates or times"], ()),
    "money.csv": (with_column([f"{i} €" for i in range(N)], "price"), ["'price'", "40 different texts", "--drop"], ()),
    "thousands or decimals.tsv": (
        text(["f\ty", *(f"{1000 + 9 * i:,}\t{i}" for i in range(N))]),
        ["column 'f' holds '1,000', which may be 1.000 or 1000", "decimal point", "--drop 'f'"], ()),
    "target of either.tsv": (
        text(["f\ty", *(f"{i}\t{1000 + 9 * i:,}" for i in range(N))]),
        ["the target 'y' holds '1,000', which may be 1.000 or 1000", "decimal point"], NO_DROP),
    "points or thousands.tsv": (
        text(["f\tg\ty", *(f"1.{i + 100}\t0,5{i}\t{i}" for i in range(N))]),
        ["column 'f' holds '1.100', which may be 1.100 or 1100", "decimal commas", "--drop 'f'"], ()),
    "percent mixed.csv": (
        with_column([f"{i}{'%' * (i % 2)}" for i in range(N)], "p"), ["'p' holds numbers and text such as '1%'"], ()),
    "among numbers.csv": (
        with_column(["n.d." if i == 3 else str(i) for i in range(N)]), ["'c' holds numbers and text such as 'n.d.'"], ()
    ),
    "identifiers.csv": (with_column([f"plot {i}" for i in range(N)]), ["40 different texts", "--drop 'c'"], ()),
    "postcodes.csv": (with_column([f'"0{i}x"' for i in range(N)]), ["40 different texts", "--drop 'c'"], ()),
    "hexadecimal.csv": (with_column([f"0x{77 * i:x}" for i in range(N)]), ["40 different texts ('0x0'"], ()),
    "hexadecimal among numbers.csv": (
        with_column(["0x1f" if i == 3 else str(i) for i in range(N)]), ["numbers and text such as '0x1f'"], ()),
    "gaps.csv": (with_column(["" if i in (4, 6) else "1" for i in range(N)]),
                 ["2 cells missing", "'c' (2)", "row 5", "--missing mean", "--drop"], ()),
    "target gaps.csv": (text(lines(y=lambda v: "NA" if v == Y[2] else point(v))),
                        ["1 cell missing", "'y' (1)", "row 3", "--missing drop"], NO_DROP),
    "target text.csv": (text(lines(y=lambda v: "high" if v > 0 else "low")), ["the target 'y' holds text"], NO_DROP),
    "target cell.csv": (spoiled(35, "1,2,12a"), ["the target 'y' holds '12a' in row 34", "--missing drop"], NO_DROP),
    "target minus.csv": (spoiled(5, "1,2,4.36-"), ["holds '4.36-' in row 4", "minus first, '-4.36'"], NO_DROP),
    "target notations.csv": (
        text([*lines(sep=";")[:-1], "1;2;12,5"]), [f"'12,5' in row {N}", "differently from", "one notation"], NO_DROP),
    "target dates.csv": (text([lines()[0], *(f"1,2,{d}" for d in DAYS)]), ["the target 'y' holds dates"], NO_DROP),
    "target lists.parquet": (as_parquet({"a": A, "y": [[1.0]] * N}), ["the target 'y' is of type list"], NO_DROP),
    "infinite.csv": (
        spoiled(8, "inf,1,1"), ["1 cell infinite", "'a' (1)", "row 7", "--missing drop", "--drop"], ["--missing mean"]),
    "infinite and missing.csv": (
        spoiled(8, "inf,,1"), ["2 cells missing or not finite (1 infinite)", "--missing drop"], ["--missing mean"]),
    "infinite target.csv": (
        spoiled(8, "1,1,-inf"), ["1 cell infinite", "'y' (1)", "--missing drop"], ["--missing mean", "--drop"]),
    "too large.parquet": (as_parquet({"a": ["1e400", *map(point, A[1:])], "y": Y}), ["'a' is infinite in row 1"], ()),
    "lists.parquet": (as_parquet({"a": A, "c": [[1]] * N, "y": Y}), ["'c' is of type list", "--drop 'c'"], ()),
    "bytes.parquet": (as_parquet({"a": A, "c": [b"\xff"] * N, "y": Y}), ["'c' holds texts that are not UTF-8"], ()),
    "empty column.csv": (with_column([""] * N), ["40 cells missing", "'c' (40)"], ()),
}  # fmt: skip


# What is asked of a model that knows a category, in tables to predict

KNOWN = text(
    ["a,kind,y", *(f"{a},{'clay' if i % 3 else 'sand'},{y}" for i, (a, y) in enumerate(zip(A, Y, strict=True)))]
)
ASKED = {
    "as before.csv": (b"a,kind\n1,clay\n2,sand\n", None),
    "infinite.csv": (b"a,kind\n1,clay\n-inf,sand\n", ["1 cell infinite", "'a' (1)", "row 2", "Correct them"]),
    "gap.csv": (b"a,kind\n1,clay\n,sand\n", ["1 cell missing", "row 2"]),
    "gap of text.csv": (b"a,kind\n1,\n3,sand\n", ["1 cell missing", "row 1"]),
    "peat.csv": (b"a,kind\n1,peat\n", ["'kind' holds 'peat'", "'clay', 'sand'"]),
    "text.csv": (b"a,kind\nx,clay\n", ["'a' holds text ('x')", "learned numbers"]),
    "dates.csv": (b"a,kind\n2024-01-01,clay\n", ["'a' holds dates"]),
    "lacking.csv": (b"a,sort\n1,clay\n", ["lacks 1 column of the model: 'kind'"]),
    "ragged.csv": (b"a,kind\n1,clay\n1,clay,3\n", ["line 3 has 3 cells"]),
}

RUNNER = textwrap.dedent("""
    import contextlib, io, json, os, sys, threading
    from olsen import cli

    def pipe_of(path):
        reading, writing = os.pipe()
        def write():
            with open(path, "rb") as source, os.fdopen(writing, "wb") as pipe:
                pipe.write(source.read())
        threading.Thread(target=write).start()
        return reading

    for line in open(sys.argv[1]):
        piped, arguments = json.loads(line)
        if piped:
            reading = pipe_of(piped)
            os.dup2(reading, 0)
            arguments = [part.replace("/dev/fd/pipe", f"/dev/fd/{reading}") for part in arguments]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(arguments)
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
""")
FIT = ("--target", "y", "--members", "3", "--jobs", "1", "--json")


def hashes(folder):
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in sorted(folder.rglob("*")) if path.is_file()}


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def run_all(commands, here, **settings):
    """Exit code, output and errors of many runs of the command, in one process.

    A command is a tuple of arguments, or a pair of a file and arguments: then the file comes through a pipe, which is
    standard input and ``/dev/fd/pipe``.
    """
    pairs = [command if isinstance(command[1], tuple) else (None, command) for command in commands]
    given = [json.dumps([piped and str(piped), list(map(str, parts))]) for piped, parts in pairs]
    (here.parent / f"{here.name}.commands").write_text("\n".join(given))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, here.parent / f"{here.name}.commands"],
        capture_output=True, text=True, cwd=here, env=environment(), **settings,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


# Folders of files, and ways to read a file through a pipe

LARGE = [2**53 + 2 * i + 1 for i in range(N)]
FOLDERS = {
    "csv": {"one.csv": TEXT, "two.csv": TEXT},
    "parquet": {"one.parquet": PARQUET, "_SUCCESS": b""},
    "mixed": {"one.parquet": PARQUET, "two.csv": TEXT},
    "text inside": {"one.parquet": PARQUET, "two.parquet": TEXT},
    "nothing": {},
}
PIPES = {
    "text": (TEXT, "/dev/stdin"),
    "packed": (zstd(TEXT), "/dev/stdin"),
    "parquet": (PARQUET, "/dev/fd/pipe"),
    "empty": (b"", "/dev/stdin"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the command said about every file: (what was asked, name of the file) -> exit code, output, errors."""
    here = tmp_path_factory.mktemp("tables")
    asked = {}
    for folder, group in (("read", READ), ("refused", REFUSED), ("asked", ASKED)):
        (here / folder).mkdir()
        for name, (content, *_) in group.items():
            (here / folder / name).write_bytes(content)
            asked[folder, name] = ("fit", here / folder / name, *FIT)
    for folder, files in FOLDERS.items():
        (here / "folders" / folder).mkdir(parents=True)
        for name, content in files.items():
            (here / "folders" / folder / name).write_bytes(content)
        asked["folder", folder] = ("fit", here / "folders" / folder, *FIT)
    asked["folder", "."] = ("fit", ".", *FIT)
    (here / "whole.csv").write_bytes(with_column(map(str, LARGE), "key"))
    asked["whole", "large"] = ("fit", here / "whole.csv", *FIT)
    for name, (content, path) in PIPES.items():
        (here / f"{name}.piped").write_bytes(content)
        asked["pipe", name] = (here / f"{name}.piped", ("fit", path, *FIT))
    (here / "known.csv").write_bytes(KNOWN)
    (here / "m.skops").write_bytes(b"")
    asked = {"known": ("fit", here / "known.csv", *FIT, "--out", here / "m.skops"), **asked}
    asked |= {("asked", name): ("predict", here / "m.skops", here / "asked" / name, "--json") for name in ASKED}
    before = hashes(here)
    found = run_all(asked.values(), here)
    changed = {path.name for path, digest in hashes(here).items() if digest != before.get(path)}
    assert changed == {"m.skops"}, "a table was changed"
    return dict(zip(asked, found, strict=True))


def one_line(text):
    assert text.startswith("olsen: ") and text.count("\n") == 1 and "Traceback" not in text, text
    return text


def test_there_are_many():
    assert len(READ) + len(REFUSED) + len(ASKED) >= 60


@pytest.mark.parametrize("name", READ)
def test_a_table_gives_the_right_numbers(name, results):
    code, out, err = results["read", name]
    assert (code, err) == (0, "")
    found, plain = json.loads(out), json.loads(results["read", "plain.csv"][1])
    assert found["coefficients"] == plain["coefficients"] and found["errors"] == plain["errors"]
    words = READ[name][1]
    messages = found["data"].get("messages", found.get("messages"))
    assert any(words in message for message in messages) if words else not messages


def test_the_plain_table_is_read_to_the_last_digit(tmp_path):
    """The table that all others are compared with."""
    (tmp_path / "t.csv").write_bytes(TEXT)
    table, messages = read_table(tmp_path / "t.csv")
    encoding = Encoding.learn(table, "y")
    np.testing.assert_array_equal(encoding.features(table), np.column_stack([A, B]))
    np.testing.assert_array_equal(encoding.response(table), Y)
    assert messages == encoding.messages == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused_in_one_line(name, results):
    code, out, err = results["refused", name]
    _, words, never = REFUSED[name]
    assert code == 1 and out == "" and one_line(err)
    assert not [word for word in words if word not in err], err
    assert not [word for word in never if word in err], err


@pytest.mark.parametrize("name", ASKED)
def test_predict_advises_nothing_that_cannot_be_typed(name, results):
    code, out, err = results["asked", name]
    words = ASKED[name][1]
    if words is None:
        assert code == 0 and len(json.loads(out)["y"]) == 2
    else:
        assert code == 1 and out == "" and one_line(err) and "--drop" not in err and "--dates" not in err
        assert "infinite" not in err or "--missing" not in err
        assert not [word for word in words if word not in err], err


# Folders, pipes, what is not installed


def test_folders(results):
    assert results["folder", "parquet"][0] == 0
    for name, words in {
        "csv": ["csv is a folder without Parquet files", "'one.csv'"],
        "mixed": ["mixed is a folder of Parquet files, but two.csv in it is none"],
        "text inside": ["two.parquet in it is none"],
        "nothing": ["nothing is a folder without Parquet files, not a table."],
        ".": [" is a folder of Parquet files, but "],
    }.items():
        code, _, err = results["folder", name]
        assert code == 1 and "damaged" not in one_line(err) and not [word for word in words if word not in err], err
    assert results["folder", "."][2].startswith("olsen: tables")  # what the folder is called


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/stdin")
def test_standard_input_and_pipes(results):
    plain = json.loads(results["read", "plain.csv"][1])["coefficients"]
    for name in ("text", "packed", "parquet"):
        code, out, err = results["pipe", name]
        assert (code, err) == (0, "") and json.loads(out)["coefficients"] == plain
    assert results["pipe", "empty"] == (1, "", "olsen: standard input is empty.\n")


def test_a_dash_is_standard_input():
    code = "from olsen.cli.tables import read_table; print(read_table('-')[0].column('y').to_pylist())"
    done = subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, env=environment())
    assert json.loads(done.stdout) == Y.tolist()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits on memory")
def test_endless_pipes_and_packed_bombs_stop_at_a_share_of_the_memory(tmp_path):
    """Under a limit of 3 GB: an endless device, and 3 MB that unpack to 3 GB."""
    import resource

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"a,b,y\n") + gzip.compress(b"1,2,3\n" * 2_500_000) * 200)
    endless, packed = run_all([("fit", path, *FIT) for path in ("/dev/zero", bomb)], tmp_path, preexec_fn=limited)
    for (code, _, err), words in ((endless, "/dev/zero holds more than"), (packed, "bomb.csv.gz unpacks to more than")):
        assert code == 1 and words in one_line(err) and "quarter of the free memory" in err


def as_workbook():
    """The smallest file that Excel would open: one sheet with the numbers of the table."""
    rows = [("a", "b", "y"), *zip(A, B, Y, strict=True)]
    cells = "".join(f"<row r='{i}'>{''.join(map(cell, row))}</row>" for i, row in enumerate(rows, 1))
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    related = (
        "<Relationships xmlns='{0}/relationships'><Relationship Id='r1' Type='{1}/{2}' Target='{3}'/></Relationships>"
    )
    return as_zip({
        "[Content_Types].xml": f"<Types xmlns='{package}/content-types'>"
        "<Default Extension='rels' ContentType='application/vnd.openxmlformats-package.relationships+xml'/>"
        f"<Override PartName='/xl/workbook.xml' ContentType='{kind}.sheet.main+xml'/>"
        f"<Override PartName='/xl/s1.xml' ContentType='{kind}.worksheet+xml'/></Types>",
        "_rels/.rels": related.format(package, office, "officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": f"<workbook xmlns='{main}' xmlns:r='{office}'>"
        "<sheets><sheet name='One' sheetId='1' r:id='r1'/></sheets></workbook>",
        "xl/_rels/workbook.xml.rels": related.format(package, office, "worksheet", "s1.xml"),
        "xl/s1.xml": f"<worksheet xmlns='{main}'><sheetData>{cells}</sheetData></worksheet>",
    })  # fmt: skip


def cell(value):
    if isinstance(value, str):
        return f"<c t='inlineStr'><is><t>{value}</t></is></c>"
    return f"<c><v>{value}</v></c>"


def test_excel_without_openpyxl_says_what_to_install(olsen, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(as_workbook())
    code, _, err = olsen("fit", tmp_path / "t.xlsx", *FIT)
    assert code == 1 and "t.xlsx is an Excel file" in one_line(err) and "pip install openpyxl" in err


def test_excel(results, olsen, tmp_path):
    pytest.importorskip("openpyxl")
    (tmp_path / "t.csv").write_bytes(as_workbook())
    code, out, _ = olsen("fit", tmp_path / "t.csv", *FIT)
    assert code == 0
    assert json.loads(out)["coefficients"] == json.loads(results["read", "plain.csv"][1])["coefficients"]


# Whole numbers that floating point rounds


def test_large_whole_numbers_are_rounded_and_said(results, tmp_path):
    code, out, err = results["whole", "large"]
    assert (code, err) == (0, "") and "above 2^53" in out and "--drop 'key'" in out
    table = table_of(tmp_path, with_column(map(str, LARGE), "key"))
    np.testing.assert_array_equal(Encoding.learn(table, "y").features(table)[:, 1], np.array(LARGE, dtype=float))


# What is chosen for columns: dates, orders, identifiers, unknown categories, gaps


def table_of(tmp_path, content, **options):
    path = tmp_path / "t.csv"
    path.write_text(content) if isinstance(content, str) else path.write_bytes(content)
    return read_table(path, **options)[0]


def stored(encoding):
    """The encoding as it comes back from a model file."""
    return replace(encoding, stage="predict")


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y-%m-%d 12:00:00"])
def test_dates_become_days(tmp_path, form):
    table = table_of(tmp_path, with_column([d.strftime(form) for d in DAYS], "day"))
    encoding = Encoding.learn(table, "y", dates=["day"])
    expected = [(d - datetime.date(1970, 1, 1)).days + 0.5 * ("12:00" in form) for d in DAYS]
    np.testing.assert_allclose(encoding.features(table)[:, 1], expected, rtol=1e-15)
    assert "column 'day' holds dates, which become days since 1970-01-01." in encoding.messages
    later = table_of(tmp_path, f"a,day\n1,{datetime.date(2025, 2, 3).strftime(form)}\n")  # ambiguous by itself
    np.testing.assert_allclose(stored(encoding).features(later)[0, 1], 20122 + 0.5 * ("12:00" in form))


def test_dates_that_cannot_be_told_apart_are_refused(tmp_path):
    table = table_of(tmp_path, with_column([f"0{i % 9 + 1}/05/2024" for i in range(N)], "day"))
    with pytest.raises(TableError, match="'day' holds dates such as '01/05/2024', of which the day and the month"):
        Encoding.learn(table, "y", dates=["day"])
    with pytest.raises(TableError, match=r"'a' holds no dates.*leave out --dates 'a'"):
        Encoding.learn(table, "y", ["day"], dates=["a"])


def test_categories_with_an_order(tmp_path):
    sizes = ["SML"[i % 3] for i in range(N)]
    table = table_of(tmp_path, with_column(sizes, "size"))
    encoding = Encoding.learn(table, "y", ordinal=["size=S<M<L"])
    assert encoding.names == ["a", "size"] and "'S' = 0, 'M' = 1, 'L' = 2" in encoding.messages[0]
    np.testing.assert_array_equal(stored(encoding).features(table)[:, 1], ["SML".index(s) for s in sizes])
    np.testing.assert_array_equal(
        Encoding.learn(table, "y", ordinal=["size"]).features(table)[:, 1], ["LMS".index(s) for s in sizes]
    )
    with pytest.raises(TableError, match="holds 'L', which its order does not name"):
        Encoding.learn(table, "y", ordinal=["size=S<M"])
    with pytest.raises(KeyError, match="no column 'sise=S<M'"):
        Encoding.learn(table, "y", ordinal=["sise=S<M"])
    numbers = table_of(tmp_path, with_column([str((1, 20, 3)[i % 3]) for i in range(N)], "grade"))
    encoding = Encoding.learn(numbers, "y", ordinal=["grade=20<3<1"])
    np.testing.assert_array_equal(encoding.features(numbers)[:, 1], [(2, 0, 1)[i % 3] for i in range(N)])


def test_unknown_categories_are_none_of_those_known(tmp_path):
    table = table_of(tmp_path, with_column(["xyz"[i % 3] for i in range(N)]))
    encoding = Encoding.learn(table, "y")
    later = table_of(tmp_path, "a,c\n1,w\n1,y\n")
    with pytest.raises(TableError, match="holds 'w', which the model has not seen"):
        stored(encoding).features(later)


def test_identifiers_are_handed_through_as_they_stand(tmp_path):
    keys = [f"00{i}" if i % 4 else "NA" for i in range(N)]
    table = table_of(tmp_path, with_column(keys, " key "), verbatim=["key"])
    encoding = Encoding.learn(table, "y", ids=["key"])
    assert encoding.names == ["a"] and texts_of(table, ["key"]) == {"key": keys}
    assert texts_of(pa.table({"n": [1.0, None, 2.5]}), ["n"]) == {"n": ["1", "", "2.5"]}
    with pytest.raises(KeyError, match="no column 'kex'"):
        texts_of(table, ["kex"])


def gappy(tmp_path):
    rows = [("1", "u", "1"), ("", "v", "2"), ("3", "", "3"), ("8", "u", "4"), ("4", "v", "5"), ("5", "u", "")]
    return table_of(tmp_path, "a,k,y\n" + "".join(f"{','.join(row)}\n" for row in rows))


def test_rows_with_gaps_are_left_out(tmp_path):
    table, encoding = learn_table(gappy(tmp_path), "y", missing="drop")
    assert encoding.messages[0] == "3 of 6 rows left out: cells in them are missing or not finite."
    np.testing.assert_array_equal(encoding.features(table), [[1, 0], [8, 0], [4, 1]])
    np.testing.assert_array_equal(encoding.response(table), [1, 4, 5])
    with pytest.raises(TableError, match=r"every row has a cell that is missing.*'k' .2 of 2"):
        learn_table(table_of(tmp_path, "a,k,y\n1,,2\n,,3\n"), "y", missing="drop")


def test_gaps_are_filled_with_means_and_marked(tmp_path):
    whole = gappy(tmp_path).slice(0, 5)
    table, encoding = learn_table(whole, "y", missing="mean")
    assert encoding.names == ["a", "missingindicator_a", "k_v", "missingindicator_k"]
    mean, share = (1 + 3 + 8 + 4) / 4, 0  # of two texts that are equally frequent, the first
    expected = [[1, 0, 0, 0], [mean, 1, 1, 0], [3, 0, share, 1], [8, 0, 0, 0], [4, 0, 1, 0]]
    np.testing.assert_array_equal(encoding.features(table), expected)
    assert "gaps in 2 columns are filled with means" in encoding.messages[-1]
    later = table_of(tmp_path, "a,k\n,\n7,v\n")
    np.testing.assert_array_equal(stored(encoding).features(later), [[mean, 1, share, 1], [7, 0, 1, 0]])
    with pytest.raises(TableError, match=r"'y' \(1\), the first in row 6. Fill them, or .*--missing drop"):
        learn_table(gappy(tmp_path), "y", missing="mean")


def test_infinite_cells_have_no_mean(tmp_path):
    with pytest.raises(TableError, match="column 'a' is infinite in row 3"):
        learn_table(table_of(tmp_path, "a,y\n1,3\n,5\ninf,1\n2,2\n"), "y", missing="mean")


def test_a_column_without_gaps_in_training_is_filled_too_but_not_marked(tmp_path):
    _, encoding = learn_table(table_of(tmp_path, "a,b,y\n1,2,3\n3,4,5\n5,9,1\n"), "y", missing="mean")
    assert encoding.names == ["a", "b"]
    np.testing.assert_array_equal(stored(encoding).features(table_of(tmp_path, "a,b\n,7\n")), [[3, 7]])


# The notation of numbers, and blanks around texts: what was learned decides


def exact(write, sep, quote=""):
    """A table in which y = x + f / 100 to the last digit, f written by a function."""
    x, f = np.round(B, 1), np.round(np.abs(A)).astype(int) + 1000
    rows = zip(map(point, x), map(write, f.tolist()), map(point, x + f / 100), strict=True)
    return text([sep.join("xfy"), *(sep.join([a, f"{quote}{b}{quote}", c]) for a, b, c in rows)])


THOUSANDS = "{:,}".format
FITTED = {
    "comma between thousands.csv": exact(THOUSANDS, ",", '"'),
    "comma between thousands.txt": exact(THOUSANDS, ";"),
    "plain.csv": exact(str, ","),
    "decimal comma.csv": exact(lambda f: f"{f / 1000:.3f}", ";").replace(b".", b","),
}
EITHER = [f"x{sep}f\n1{sep}8,033\n2{sep}1,500\n" for sep in "\t;|"]
EITHER += [content.replace("\n1", "\n1,0").replace("\n2", "\n2,0") for content in EITHER]


@pytest.fixture
def asked(olsen, tmp_path):
    """Fit one of the tables above and predict another one: exit code, predictions, errors."""

    def ask(name, content):
        (tmp_path / name).write_bytes(FITTED[name])
        (tmp_path / "new.csv").write_text(content)
        model = tmp_path / "m.skops"
        assert olsen("fit", tmp_path / name, *FIT, "--out", model)[0] == 0
        code, out, err = olsen("predict", model, tmp_path / "new.csv", "--json")
        return code, json.loads(out)["y"] if code == 0 else [], err

    return ask


@pytest.mark.parametrize("content", EITHER)
@pytest.mark.parametrize("name", ["comma between thousands.csv", "comma between thousands.txt", "decimal comma.csv"])
def test_a_comma_is_what_it_was_in_training(asked, name, content):
    """Whatever the separator of the new table, and whatever its other columns hold."""
    code, found, err = asked(name, content)
    assert code == 0 and ("decimals of column 'x' have a comma" in err) == ("1,0" in content and "thousands" in name)
    np.testing.assert_allclose(found, [81.33, 17.0], rtol=1e-6)


@pytest.mark.parametrize("content", EITHER)
def test_a_comma_that_may_be_either_is_refused_where_plain_numbers_were_learned(asked, content):
    code, _, err = asked("plain.csv", content)
    assert code == 1 and "column 'f' holds '1,500', which may be 1.500 or 1500" in one_line(err)
    assert "decimal point" in err and "--drop" not in err


def test_decimal_commas_are_read_for_plain_numbers_and_said(asked):
    code, found, err = asked("plain.csv", "x;f\n1,5;8033,25\n2;1,500\n")
    assert code == 0 and err == (
        "olsen: note: decimals of column 'x' and 1 other column have a comma, unlike in training: '1,5' is read as "
        "1.5.\n"
    )
    np.testing.assert_allclose(found, [81.8325, 2.015], rtol=1e-6)


def test_another_notation_than_that_of_training_is_refused(asked):
    code, _, err = asked("comma between thousands.csv", "x;f\n1;1,500\n1;8033,25\n")
    assert code == 1 and "'f' holds '8033,25' in row 2" in one_line(err)
    code, _, err = asked("decimal comma.csv", "x;f\n1;2.345\n2;1.500\n")
    assert code == 1 and "'f' holds '2.345', which may be 2.345 or 2345" in one_line(err)
    code, found, err = asked("decimal comma.csv", "x,f\n1,8.033\n2,1.500\n")  # commas separate: points are decimal
    assert (code, err) == (0, "")
    np.testing.assert_allclose(found, [81.33, 17.0], rtol=1e-6)


def test_other_columns_settle_what_a_comma_is_in_training(olsen, tmp_path):
    rows = [(f"{1000 + 9 * i:,}", f"0,{i}5", i) for i in range(N)]
    for sign, (other, value) in {",": (str, "1"), ".": (lambda text: text.replace(",", "."), "1000")}.items():
        content = text(["f\tg\ty", *(f"{f}\t{other(g)}\t{y}" for f, g, y in rows)])
        (tmp_path / "t.tsv").write_bytes(content)
        code, out, _ = olsen("fit", tmp_path / "t.tsv", *FIT)
        assert code == 0 and f"'1,000' is {value}." in out and ("decimals by a comma" in out) == (sign == ",")
        encoding = Encoding.learn(read_table(tmp_path / "t.tsv")[0], "y")
        assert [column.parser.decimal for column in encoding.columns] == [sign, "," if sign == "," else None]


def test_codes_with_leading_zeros_are_numbers_and_said(olsen, tmp_path):
    (tmp_path / "t.csv").write_bytes(with_column([f"00{i + 100}" for i in range(N)], "plot"))
    code, out, _ = olsen("fit", tmp_path / "t.csv", *FIT)
    said = "column 'plot' holds numbers with leading zeros: '00100' is 100; if they are identifiers, leave it out"
    assert code == 0 and said in out


def test_blanks_around_texts_are_no_part_of_them(tmp_path):
    kinds = [("a", " b", "a ", "b")[i % 4] for i in range(N)]
    table = table_of(tmp_path, with_column(kinds))
    encoding = Encoding.learn(table, "y")
    assert encoding.names == ["a", "c_b"] and any("makes 'a', 'a ' one category" in m for m in encoding.messages)
    np.testing.assert_array_equal(encoding.features(table)[:, 1], [kind.strip() == "b" for kind in kinds])
    psql = table_of(tmp_path, " a | c | y \n 1.5 | b | 2\n 2.5 |   | 3\n 3.5 | NA | 4\n")
    np.testing.assert_array_equal(stored(encoding).features(psql.slice(0, 1)), [[1.5, 1]])
    assert psql.column("c").null_count == 2
    gappy = table_of(tmp_path, "a,c,k\n 1.5,x, 3\n ,y, NA\n").select(["a", "k"])
    assert gappy.to_pydict() == {"a": [1.5, None], "k": [3, None]}
    with pytest.raises(TableError, match="'c' holds 'd', which the model has not seen; it knows 'a', 'b'"):
        stored(encoding).features(table_of(tmp_path, "a,c\n1, d\n2, b\n"))
