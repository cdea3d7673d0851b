"""Tables from the wild: read to the right numbers, or refused in one line that names the place
and the way out.
"""

import bz2
import datetime
import decimal
import gzip
import hashlib
import io
import subprocess
import sys
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from loops import case

pa = pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")
pq = pytest.importorskip("pyarrow.parquet")

from olsen._tables.cells import strings_of  # noqa: E402
from olsen._tables.problems import TableError  # noqa: E402
from olsen.cli.encoding import learn_encoding  # noqa: E402
from olsen.cli.tables import read_table  # noqa: E402

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


def text(rows, line_end="\n", last="\n", encoding="utf-8"):
    return (line_end.join(rows) + last).encode(encoding)


def with_column(values, name="c"):
    """The table with one more column of strings, before the target."""
    rows = zip(map(point, A), values, map(point, Y), strict=True)
    return text([f"a,{name},y", *(",".join(row) for row in rows)])


def spoiled(number, line):
    """The table with one of its lines replaced, counted from one."""
    rows = lines()
    rows[number - 1] = line
    return text(rows)


def as_parquet(columns):
    file = io.BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), file)
    return file.getvalue()


def as_zip(parts, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def zstd(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


def comma(value):
    return point(value).replace(".", ",")


def german(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def spaced(value):
    return f"{value:,.2f}".translate(str.maketrans({",": "\xa0", ".": ","}))


TEXT = text(lines())
PARQUET = as_parquet(PLAIN)


# Tables that hold the same numbers: name of the file -> content, and words of the message that says
# what was done, if any

READ = {
    "title.csv": (text(["Harvest of the year", *lines()]), "1 line above the header left out"),
    "plain.csv": (TEXT, None),
    "windows.csv": (text(lines(), "\r\n", "\r\n"), None),
    "old mac.csv": (text(lines(), "\r", "\r"), None),
    "blank lines.csv": (text(["", *lines(), "", ""], "\n\n"), None),
    "mark.csv": (b"\xef\xbb\xbf" + TEXT, None),
    "quoted.csv": (text(lines(a=lambda v: f'"{v}"', header=('"a"', "b", "y"))), None),
    "thousands.tsv": (text(lines(german, sep="\t")), "written as text in 'a'"),
    "semicolons.csv": (text(lines(comma, comma, comma, ";")), "written as text in 'a', 'b', 'y'"),
    "both.txt": (text(lines(a=comma, sep="\t")), "written as text in 'a'"),
    "header as comment.csv": (text([f"# {lines()[0]}", *lines()[1:]]), None),
    "trailing.csv": (text(lines(end=",,")), "2 columns without a name"),
    "row names.csv": (
        text([f'"",{lines()[0]}', *(f'"r{i}",{v}' for i, v in enumerate(lines()[1:]))]),
        "row names",
    ),
    "scientific.csv": (text(lines(a=lambda v: f"{v:.6e}")), None),
    "packed.csv.gz": (gzip.compress(TEXT), None),
    "packed.csv.bz2": (bz2.compress(TEXT), None),
    "packed.csv.zst": (zstd(TEXT), None),
    "packed, by another name.csv": (gzip.compress(TEXT), None),
    "two parts.gz": (gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:]), None),
    "not packed.csv.gz": (TEXT, None),
    "table.parquet": (PARQUET, None),
    "parquet.csv": (PARQUET, None),
    "text.parquet": (TEXT, None),
    "windows.txt": (
        text(lines(spaced, comma, comma, ";"), encoding="cp1252"),
        "read as Windows-1252",
    ),
    "unicode.txt": (text(lines(sep="\t"), encoding="utf-16"), "the file is UTF-16"),
    "other order.csv": (b"\xfe\xff" + text(lines(), encoding="utf-16-be"), "the file is UTF-16"),
    "unicode.txt.gz": (
        gzip.compress(text(lines(sep="\t"), encoding="utf-16")),
        "the file is UTF-16",
    ),
    "thousands.csv": (text(lines(a=lambda v: f'"{v:,.2f}"')), "written as text in 'a'"),
    "narrow spaces.csv": (
        text(lines(a=lambda v: f"{v:,.2f}".replace(",", "\u202f"))),
        "written as text in 'a'",
    ),
    "texts.parquet": (
        as_parquet({"a": [point(v) for v in A], "b": B, "y": Y}),
        "written as text in 'a'",
    ),
    "dictionary.parquet": (
        as_parquet({"a": pa.array([point(v) for v in A]).dictionary_encode(), "b": B, "y": Y}),
        "written as text in 'a'",
    ),
    "decimals.parquet": (
        as_parquet({"a": [decimal.Decimal(point(v)) for v in A], "b": B, "y": Y}),
        None,
    ),
    "long texts.parquet": (
        as_parquet({"a": pa.array([point(v) for v in A], pa.large_string()), "b": B, "y": Y}),
        "written as text in 'a'",
    ),
}


# Tables that are refused: name of the file -> content, and words that the message must hold

REFUSED = {
    "several.zip": (as_zip({"a.csv": TEXT}), "several.zip is no Excel file", "CSV"),
    "cut.gz": (gzip.compress(TEXT)[:-20], "cut.gz is a damaged gzip file"),
    "flipped.zst": (
        zstd(TEXT)[:30] + b"\xff" + zstd(TEXT)[31:],
        "flipped.zst is a damaged zstd file",
    ),
    "nothing.gz": (gzip.compress(b""), "nothing.gz is empty"),
    "nothing.csv": (b"\xef\xbb\xbf\n", "nothing.csv is empty"),
    "no mark.csv": (
        TEXT.decode().encode("utf-16-le"),
        "is UTF-16 without a byte order mark",
        "UTF-8",
    ),
    "cut mark.csv": (
        TEXT.decode().encode("utf-16")[:-1],
        "begins as UTF-16, but is damaged",
        "UTF-8",
    ),
    "zero.csv": (spoiled(7, "1,2\x00,3"), "zero.csv holds zero bytes"),
    "cut.parquet": (
        PARQUET[:-30],
        "cut.parquet is not Parquet, or is damaged",
        "download or export it again",
    ),
    "arrow.arrow": (b"ARROW1\x00\x00\xff\xff\xff\xff", "arrow.arrow holds zero bytes", "Parquet"),
    "header only.csv": (b"a,b,y\n", "header only.csv has a header but no rows"),
    "few cells.csv": (spoiled(7, "1,2"), "few cells.csv", "line 7 has 2 cells, the header has 3"),
    "many cells.csv": (spoiled(9, "1,2,3,4,5"), "many cells.csv", "line 9 has 5 cells"),
    "open quote.csv": (spoiled(6, '1,"2,3'), "line 6 has 2 cells", "quotation mark"),
    "open quote, target.csv": (spoiled(6, '1,2,"3'), "'y' holds", "'3", "in row 5"),
    "spaces.txt": (text(lines(sep=" ")), "'a b y'"),
    "unnamed.csv": (text(lines(header=("a", "", "y"))), "unnamed.csv", "after 'a'"),
    "doubled.csv": (text(lines(header=("a", "a", "y"))), "several columns named 'a'", "rename"),
    "which is the day.csv": (
        with_column([f"0{i % 9 + 1}/05/2024" for i in range(N)], "day"),
        "'day' holds dates such as '01/05/2024'",
        "write dates as 2024-12-31",
    ),
    "thousands or decimals.tsv": (
        text(["f\ty", *(f"{1000 + 9 * i:,}\t{i}" for i in range(N))]),
        "column 'f' holds '1,000', which may be 1.000 or 1000",
        "decimal mark",
    ),
    "target of either.tsv": (
        text(["f\ty", *(f"{i}\t{1000 + 9 * i:,}" for i in range(N))]),
        "the target 'y' holds '1,000', which may be 1.000 or 1000",
        "decimal mark",
    ),
    "points or thousands.tsv": (
        text(["f\tg\ty", *(f"1.{i + 100}\t0,5{i}\t{i}" for i in range(N))]),
        "column 'f' holds '1.100', which may be 1.100 or 1100",
        "decimal mark",
    ),
    "among numbers.csv": (
        with_column(["n.d." if i == 3 else str(i) for i in range(N)]),
        "'c' holds numbers and text such as 'n.d.'",
    ),
    "identifiers.csv": (
        with_column([f"plot {i}" for i in range(N)]),
        "40 different strings",
        "--id 'c'",
    ),
    "missing.csv": (
        with_column(["" if i in (4, 6) else "1" for i in range(N)]),
        "2 cells missing",
        "'c' (2)",
        "row 5",
        "--missing mean",
        "--drop",
    ),
    "target missing.csv": (
        text(lines(y=lambda v: "NA" if v == Y[2] else point(v))),
        "1 cell missing",
        "'y' (1)",
        "row 3",
        "--missing drop",
    ),
    "target text.csv": (
        text(lines(y=lambda v: "high" if v > 0 else "low")),
        "the target 'y' holds text",
    ),
    "target cell.csv": (
        spoiled(35, "1,2,12a"),
        "the target 'y' holds",
        "'12a' in row 34",
        "--missing drop",
    ),
    "target notations.csv": (text([*lines(sep=";")[:-1], "1;2;12,5"]), f"'12,5' in row {N}"),
    "target lists.parquet": (
        as_parquet({"a": A, "y": [[1.0]] * N}),
        "the target 'y' is of type list",
    ),
    "infinite.csv": (
        spoiled(8, "inf,1,1"),
        "1 cell infinite",
        "'a' (1)",
        "row 7",
        "--missing drop",
        "--drop",
    ),
    "infinite and missing.csv": (
        spoiled(8, "inf,,1"),
        "2 cells missing or not finite (1 infinite)",
        "--missing drop",
    ),
    "infinite target.csv": (spoiled(8, "1,1,-inf"), "1 cell infinite", "'y' (1)", "--missing drop"),
    "too large.parquet": (
        as_parquet({"a": ["1e400", *map(point, A[1:])], "y": Y}),
        "1 cell infinite",
        "row 1",
    ),
    "large.csv": (
        with_column([point(1e200 * b) for b in B], "soil depth"),
        "the largest entry of column 'soil depth' is",
        "e+201",
        "--drop 'soil depth'",
    ),
    "large target.csv": (
        text(lines(y=lambda v: point(1e200 * v))),
        "the target 'y' is",
        "e+20",
        "unit",
    ),
    "lists.parquet": (
        as_parquet({"a": A, "c": [[1]] * N, "y": Y}),
        "'c' is of type list",
        "--drop 'c'",
    ),
    "gaps of many.csv": (
        b"a,b,c,y\n1,,2,1\n,,3,2\n3,4,NA,3\n4,5,6,4\n5,6,7,5\n",
        "'b' (2), 'a' (1), 'c' (1)",
        "row 1",
    ),
    "four rows.csv": (b"a,y\n1,1\n2,2\n3,5\n4,1\n", "4 rows; at least 5"),
    "target alone.csv": (b"y\n1\n2\n3\n", "no column besides the target 'y'"),
}

FORBIDDEN_WORDS = {  # name of the file -> advice that would not help
    "open quote, target.csv": ["--drop"],
    "which is the day.csv": ["turn them into days"],
    "target of either.tsv": ["--drop"],
    "target missing.csv": ["--drop"],
    "target text.csv": ["--drop"],
    "target cell.csv": ["--drop"],
    "target notations.csv": ["--drop"],
    "target lists.parquet": ["--drop"],
    "infinite.csv": ["--missing mean"],
    "infinite and missing.csv": ["--missing mean"],
    "infinite target.csv": ["--missing mean", "--drop"],
    "large.csv": ["of X", "sklearn"],
    "large target.csv": ["of y"],
}


# Tables to predict by a model that knows a category -> content, and words of the refusal, if any

KNOWN = text(
    [
        "a,kind,y",
        *(
            f"{a},{'clay' if i % 3 else 'sand'},{y}"
            for i, (a, y) in enumerate(zip(A, Y, strict=True))
        ),
    ]
)
TO_PREDICT = {
    "as before.csv": (b"a,kind\n1,clay\n2,sand\n", None),
    "infinite.csv": (
        b"a,kind\n1,clay\n-inf,sand\n",
        ["1 cell infinite", "'a' (1)", "row 2", "correct them"],
    ),
    "gap.csv": (b"a,kind\n1,clay\n,sand\n", ["1 cell missing", "row 2"]),
    "gap of text.csv": (b"a,kind\n1,\n3,sand\n", ["1 cell missing", "row 1"]),
    "peat.csv": (b"a,kind\n1,peat\n", ["'kind' holds 'peat'", "'clay', 'sand'"]),
    "text.csv": (b"a,kind\nx,clay\n", ["'a' holds text ('x')", "learned numbers"]),
    "dates.csv": (b"a,kind\n2024-01-01,clay\n", ["'a' holds", "'2024-01-01'"]),
    "other case.csv": (b"A,kind\n1,clay\n", ["'a'; it has 'A'"]),
    "lacking.csv": (b"a,sort\n1,clay\n", ["lacks 1 column of the model: 'kind'"]),
    "ragged.csv": (b"a,kind\n1,clay\n1,clay,3\n", ["line 3 has 3 cells"]),
}

FIT = ("--target", "y", "--members", "3", "--jobs", "1", "--json")


@contextmanager
def unchanged(folder):
    """No file of a folder is changed."""

    def hashes():
        return {
            path: hashlib.sha256(path.read_bytes()).digest()
            for path in folder.rglob("*")
            if path.is_file()
        }

    original = hashes()
    yield
    assert hashes() == original


def put(path, content):
    path.write_text(content) if isinstance(content, str) else path.write_bytes(content)
    return path


def learned(path, **options):
    """Columns and target of a table as numbers, and the messages about it."""
    table, messages = read_table(path)
    table, encoding = learn_encoding(table, "y", **options)
    return encoding.features(table), encoding.response(table), messages + encoding.messages


def test_tables_give_the_right_numbers(tmp_path):
    """Numbers are exact in every format."""
    for name, (content, words) in READ.items():
        path = put(tmp_path / name, content)
        with case(name), unchanged(tmp_path):
            X, y, messages = learned(path)
            assert_array_equal(X, np.column_stack([A, B]))
            assert_array_equal(y, Y)
            assert any(words in message for message in messages) if words else not messages


def test_a_table_is_refused(olsen_refuses, tmp_path):
    olsen_refuses("fit", tmp_path / "missing file.csv", *FIT, words="no file")
    for name, (content, *words) in REFUSED.items():
        path = put(tmp_path / name, content)
        with unchanged(tmp_path):
            err = olsen_refuses(
                "fit", path, *FIT, words=words, code=2 if name == "spaces.txt" else 1
            )
        with case(name, err):
            assert not [word for word in FORBIDDEN_WORDS.get(name, ()) if word in err]


def test_extreme_columns_and_weights_are_named(olsen, olsen_refuses, tmp_path):
    """Every command names the columns of the table, not X, y or scikit-learn."""
    columns = {name: RNG.standard_normal(60) for name in ("soil depth", "yield")}
    columns["w"] = np.full(60, 1e-200)
    columns["same"] = np.ones(60)
    plain = put(tmp_path / "plain.parquet", as_parquet(columns))
    columns["soil depth"] *= 1e200
    wide = put(tmp_path / "wide.parquet", as_parquet(columns))
    for command, words in (
        (["fit", wide, "--target", "yield"], ["column 'soil depth'", "--drop 'soil depth'"]),
        (
            ["fit", wide, "--target", "yield", "--out-of-core"],
            ["column 'soil depth'", "rows 1 to 60"],
        ),
        (["fit", wide, "--target", "soil depth", "--out-of-core"], "the target 'soil depth'"),
        (["compare", wide, "--target", "yield"], "column 'soil depth'"),
        (["fit", plain, "--target", "yield", "--weight", "w"], "--weight 'w' spans 1e-200"),
    ):
        drop = [] if "--weight" in command else ["--drop", "w"]
        err = olsen_refuses(*command, *drop, "--drop", "same", words=words)
        assert not [word for word in ("of X", "of y", "sklearn", "sample_weight") if word in err]
    out = olsen("fit", plain, target="same", drop="w", members=3)[1]
    assert "note: the target 'same' is constant, 1, in all 60 rows" in out


def test_predict_gives_no_advice_that_cannot_be_typed(olsen, olsen_json, olsen_refuses, tmp_path):
    model = tmp_path / "m.skops"
    assert olsen("fit", put(tmp_path / "known.csv", KNOWN), *FIT, "--out", model)[0] == 0
    for name, (content, words) in TO_PREDICT.items():
        path = put(tmp_path / name, content)
        if words is None:
            assert len(olsen_json("predict", model, path)["predicted_y"]) == 2
            continue
        err = olsen_refuses("predict", model, path, words=words)
        assert not [option for option in ("--drop", "--dates", "--missing") if option in err], err


def test_folders_hold_parquet(olsen_refuses, tmp_path, monkeypatch):
    """Marks of other programs are ignored; "." is called by the name of the folder."""
    for folder, files in {
        "mixed": {"one.parquet": PARQUET, "two.csv": TEXT},
        "empty": {},
        "parquet": {"one.parquet": PARQUET, "_SUCCESS": b""},
    }.items():
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            put(tmp_path / folder / name, content)
        monkeypatch.chdir(tmp_path / folder)
        if folder == "parquet":
            assert_array_equal(learned(".")[1], Y)
        else:
            olsen_refuses("fit", ".", *FIT, words=f"{folder} is not Parquet")


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/stdin")
def test_standard_input_and_pipes_are_tables(olsen_refuses, pipe_in):
    for path, content in {"/dev/stdin": zstd(TEXT), "/dev/fd/0": PARQUET}.items():
        pipe_in(content)
        with case(path):
            assert_array_equal(learned(path)[1], Y)
    pipe_in(b"")
    olsen_refuses("fit", "/dev/stdin", *FIT, words="standard input is empty")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits on memory")
def test_endless_pipes_and_packed_bombs_stop_at_a_quarter_of_the_memory(tmp_path):
    """Under a limit of 3 GB: an endless device, and 3 MB that unpack to 3 GB."""
    code = (
        "import resource, sys; from olsen import cli; resource.setrlimit(resource.RLIMIT_AS, (3 <<"
        " 30, 3 << 30)); sys.exit(sum(cli.main(['fit', path, '--target', 'y']) for path in"
        " sys.argv[1:]))"
    )
    bomb = put(
        tmp_path / "b.csv.gz",
        gzip.compress(b"a,b,y\n") + gzip.compress(b"1,2,3\n" * 2_500_000) * 200,
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "/dev/zero", bomb], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    for line, words in zip(
        done.stderr.splitlines(), ("/dev/zero holds", "b.csv.gz unpacks to"), strict=True
    ):
        assert f"{words} more than" in line and "quarter of the free memory" in line


def test_excel_without_openpyxl_says_what_to_install(olsen_refuses, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    path = put(tmp_path / "t.xlsx", as_zip({"xl/workbook.xml": ""}))
    olsen_refuses("fit", path, *FIT, words=["t.xlsx is an archive", "pip install openpyxl"])


def as_workbook(**sheets):
    """Excel file with sheets of rows of cells, by the names of the sheets."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    file = io.BytesIO()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(file)
    return file.getvalue()


def test_excel_reads_the_first_sheet_that_is_not_empty(tmp_path):
    rows = [["day", "a", "k", "y"], [DAYS[0], 1, "u", 2], [DAYS[1], "NA", "v", 3.5]]
    workbook = as_workbook(empty=[[], [None, " "]], second=rows, third=rows[:1])
    path = put(tmp_path / "t.xlsx", workbook)
    X, y, messages = learned(path, dates=["day"], missing="mean")
    assert_array_equal(X, [[19723, 1, 1, 0], [19732, 1, 0, 1]])
    assert y.tolist() == [2, 3.5] and "'second'" in messages[0]


# Tables to predict with empty rows -> content, number of predictions, and words of the note, if any

PAIRS = [["a", "b"], [1, 2], [None, None], [3, 4], ["NA", " "], [5, 6]]
BLANK_ROWS = {
    "pairs.xlsx": (lambda: as_workbook(s=PAIRS), 5, None),
    "far down.xlsx": (
        lambda: as_workbook(s=[[], *PAIRS, ["NA"], [None, " "], [None], [""]]),
        6,
        "3 empty rows",
    ),
    "one column.xlsx": (lambda: as_workbook(s=[["a"], [1], [None], [3], ["?"]]), 4, None),
    "one column.csv": (lambda: b'\n\na\n1\n\n3\nNA\n""\n', 5, None),
    "windows.csv": (lambda: b"\xef\xbb\xbf\r\na\r\n1\r\n\r\n3", 3, None),
    "ends.csv": (lambda: b"a\n1\n\n3\n\n\n", 3, "2 empty lines at the end"),
}


def test_every_row_is_predicted_or_named(olsen, tmp_path):
    """Rows without any value are rows: filled by the model, or refused with their number."""
    table = put(tmp_path / "t.csv", text(["a,y", *(f"{a},{y}" for a, y in zip(A, Y, strict=True))]))
    for missing in ("mean", "error"):
        model = tmp_path / f"{missing}.skops"
        assert olsen("fit", table, *FIT, missing=missing, out=model)[0] == 0
    for name, (content, n_rows, words) in BLANK_ROWS.items():
        path = put(tmp_path / name, content())
        with case(name):
            code, out, err = olsen("predict", tmp_path / "mean.skops", path)
            assert code == 0 and len(out.splitlines()) == 1 + n_rows, out
            assert "missing cells filled" in err or "missing cell filled" in err
            assert err.count("olsen: note: ") == 1 + bool(words) and (words or "") in err
            code, out, err = olsen("predict", tmp_path / "error.skops", path)
            assert (code, out) == (1, "") and "'a' (" in err and "the first in row 2" in err


def test_rows_that_a_fit_drops_are_counted(tmp_path):
    rows = [["a", "y"], *([a, y] for a, y in zip(A, Y, strict=True)), [None, None]]
    rows[5:5] = [[None, None], ["NA", ""]]
    path = put(tmp_path / "t.xlsx", as_workbook(s=rows))
    with pytest.raises(TableError, match=r"4 cells missing.*the first in row 5.*--missing drop"):
        learned(path)
    X, y, messages = learned(path, missing="drop")
    assert_array_equal(np.column_stack([X, y]), np.column_stack([A, Y]))
    empty_row, dropped = messages
    assert empty_row.startswith("1 empty row at the") and dropped.startswith("2 of 42 rows left")


SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
NAMES = '<row r="1"><c r="A1" t="str"><v>a</v></c><c r="B1" t="str"><v>y</v></c></row>'
SMALL = "".join(
    f'<row r="{i}"><c r="A{i}"><v>{i * i % 7}</v></c><c r="B{i}"><v>{i}</v></c></row>'
    for i in range(2, 30)
)


SHARED = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"


def crafted(sheet, texts=""):
    """Excel file with the XML of its sheet, and of the strings that cells may share."""
    with zipfile.ZipFile(io.BytesIO(as_workbook(s=[["a"]]))) as book:
        parts = {name: book.read(name).decode() for name in book.namelist()}
    parts["xl/worksheets/sheet1.xml"] = f'<worksheet xmlns="{SHEET}">{sheet}</worksheet>'
    parts["xl/sharedStrings.xml"] = f'<sst xmlns="{SHEET}">{texts}</sst>'
    shared = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{SHARED}" />'
    kinds = parts["[Content_Types].xml"]
    parts["[Content_Types].xml"] = kinds.replace("</Types>", f"{shared}</Types>")
    return as_zip(parts, compression=zipfile.ZIP_DEFLATED, compresslevel=1)


def rows_of(xml):
    return f"<sheetData>{NAMES}{xml}</sheetData>"


BOMBS = {  # name of the file -> content, and words of the refusal; the first is read
    "declared.xlsx": (lambda: crafted(f'<dimension ref="A1:XFD1048576"/>{rows_of(SMALL)}'), ""),
    "far.xlsx": (
        lambda: crafted(rows_of('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')),
        "holds '1' in row 1,048,576 and column 16,384",
    ),
    "wide.xlsx": (
        lambda: crafted(
            rows_of("".join(f'<row r="{i}"><c r="XFD{i}"/></row>' for i in range(2, 1000)))
        ),
        "has a header but no rows",
    ),
    "beyond.xlsx": (
        lambda: crafted(rows_of('<row r="9999999999"><c r="A9999999999"><v>1</v></c></row>')),
        "goes beyond row 1,048,576",
    ),
    "packed.xlsx": (lambda: crafted(rows_of("<row/>" * 6_000_000)), "unpacks to 36 MB"),
    "texts.xlsx": (
        lambda: crafted(rows_of(SMALL), "<si><t>a</t></si>" * 2_000_000),
        "unpacks to 34 MB",
    ),
    "one row.xlsx": (
        lambda: crafted(rows_of("<row>" + "<c/>" * 500_000 + "</row>")),
        "takes more than",
    ),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits on memory")
def test_workbooks_take_limited_memory(tmp_path):
    """Under a limit of 400 MB besides what the command itself takes: sheets that are small files
    and large tables.
    """
    code = """if True:
        import re, resource, sys
        from olsen import cli
        from olsen.cli import table_models
        cli.main(["fit", sys.argv[1], "--target", "y", "--members", "3", "--jobs", "1"])  # all is imported
        state = lambda name: 1024 * int(re.search(rf"{name}:\\s*(\\d+)", open("/proc/self/status").read())[1])
        limit, before = state("VmSize") + 400_000_000, state("VmRSS")
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        codes = [cli.main(["fit", path, "--target", "y", "--members", "3", "--jobs", "1"]) for path in sys.argv[1:]]
        print("codes", codes, state("VmHWM") - before < 2e8)
    """
    paths = [put(tmp_path / name, content()) for name, (content, _) in BOMBS.items()]
    assert max(path.stat().st_size for path in paths) < 1.5e6
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True)
    assert f"codes {[0, *[1] * (len(paths) - 1)]} True" in done.stdout, done
    for line, (name, (_, words)) in zip(
        done.stderr.splitlines(), list(BOMBS.items())[1:], strict=True
    ):
        assert name in line and words in line and len(line) < 400


def test_numbers_that_may_be_identifiers_have_a_note(tmp_path):
    """Whole numbers that are rounded, in two formats, and codes with leading zeros."""
    large = [2**53 + 2 * i + 1 for i in range(N)]
    codes = [f"00{i + 100}" for i in range(N)]
    for name, content, values, words in (
        ("t.csv", with_column(map(str, large), "key"), large, "above 2^53"),
        ("t.parquet", as_parquet({"a": A, "key": large, "y": Y}), large, "above 2^53"),
        ("codes.csv", with_column(codes, "key"), range(100, N + 100), "'00100' is 100"),
    ):
        X, _, (message,) = learned(put(tmp_path / name, content))
        assert words in message and "--id 'key'" in message
        assert_array_equal(X[:, 1], np.array(values, dtype=float))


# Options about columns: dates, orders, identifiers, unknown categories, missing values


def table_of(tmp_path, content, **options):
    return read_table(put(tmp_path / "t.csv", content), **options)[0]


def encoding_of(table, *drop, **options):
    return learn_encoding(table, "y", drop, **options)[1]


def stored(encoding):
    """The encoding as it comes back from a model file."""
    return replace(encoding, stage="predict")


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y-%m-%d 12:00:00"]
)
def test_dates_become_days(form, tmp_path):
    table = table_of(tmp_path, with_column([day.strftime(form) for day in DAYS], "day"))
    encoding = encoding_of(table, dates=["day"])
    half_day = 0.5 * ("12:00" in form)
    expected = [(day - datetime.date(1970, 1, 1)).days + half_day for day in DAYS]
    assert_allclose(encoding.features(table)[:, 1], expected, rtol=1e-15)
    assert "days since 1970-01-01" in encoding.messages[0]
    # day and month could be exchanged in a single new row: the format of training decides
    new = table_of(tmp_path, f"a,day\n1,{datetime.date(2025, 2, 3).strftime(form)}\n")
    assert_allclose(stored(encoding).features(new)[0, 1], 20122 + half_day)
    with pytest.raises(TableError, match="'day' holds 'x' in row 1"):
        stored(encoding).features(table_of(tmp_path, "a,day\n1,x\n"))


def test_dates_of_which_the_day_is_unclear_are_refused(tmp_path):
    table = table_of(tmp_path, with_column([f"0{i % 9 + 1}/05/2024" for i in range(N)], "day"))
    with pytest.raises(TableError, match="'day' holds dates such as '01/05/2024'"):
        encoding_of(table, dates=["day"])
    with pytest.raises(TableError, match="'a' holds"):
        encoding_of(table, "day", dates=["a"])


def test_categories_with_an_order_are_ranks(tmp_path):
    for values, option, order in (
        ("SML", "c=S<M<L", "SML"),
        ("SML", "c", "LMS"),
        (("1", "20", "3"), "c=20<3<1", ("20", "3", "1")),
        (("1", "20", "3"), "c", ("1", "3", "20")),
    ):
        with case(values, option):
            column = [values[i % 3] for i in range(N)]
            table = table_of(tmp_path, with_column(column))
            encoding = encoding_of(table, ordinal=[option])
            assert encoding.names == ["a", "c"] and f"{order[1]!r} = 1" in encoding.messages[0]
            expected = [order.index(value) for value in column]
            assert_array_equal(stored(encoding).features(table)[:, 1], expected)
    table = table_of(tmp_path, with_column(["SML"[i % 3] for i in range(N)]))
    with pytest.raises(TableError, match="holds 'L'"):
        encoding_of(table, ordinal=["c=S<M"])
    with pytest.raises(ValueError, match="no column 'd=S<M'"):
        encoding_of(table, ordinal=["d=S<M"])


def test_identifiers_are_unchanged_strings(tmp_path):
    keys = [f"00{i}" if i % 4 else "NA" for i in range(N)]
    table = table_of(tmp_path, with_column(keys, " key "), verbatim=["key"])
    assert encoding_of(table, "key").names == ["a"] and strings_of(table, ["key"]) == {"key": keys}
    assert strings_of(pa.table({"n": [1.0, None, 2.5]}), ["n"]) == {"n": ["1", "", "2.5"]}


MISSING = "a,k,y\n1,u,1\n,v,2\n3,,3\n8,u,4\n4,v,5\n5,u,\n"


def test_rows_with_missing_values_are_dropped(tmp_path):
    table, encoding = learn_encoding(table_of(tmp_path, MISSING), "y", missing="drop")
    assert "3 of 6 rows" in encoding.messages[0]
    assert_array_equal(encoding.features(table), [[1, 1, 0], [8, 1, 0], [4, 0, 1]])
    assert_array_equal(encoding.response(table), [1, 4, 5])
    with pytest.raises(TableError, match=r"every row.*'k' .2 of 2"):
        learn_encoding(table_of(tmp_path, "a,k,y\n1,,2\n,,3\n"), "y", missing="drop")


def test_missing_values_are_filled_with_means_and_marked(tmp_path):
    few = table_of(tmp_path, MISSING).slice(0, 5)
    names = encoding_of(few, missing="mean").names
    assert names == ["a", "k_u", "k_v"], "a mark of one missing value would be fitted exactly"
    table = pa.concat_tables([few] * 10)
    encoding = encoding_of(table, missing="mean")
    assert encoding.names == ["a", "a is missing", "k_u", "k_v", "k is missing"]
    mean = (1 + 3 + 8 + 4) / 4  # of two strings that are equally frequent, the first
    expected = [
        [1, 0, 1, 0, 0],
        [mean, 1, 0, 1, 0],
        [3, 0, 1, 0, 1],
        [8, 0, 1, 0, 0],
        [4, 0, 0, 1, 0],
    ]
    assert_array_equal(encoding.features(table), expected * 10)
    assert "2 columns" in encoding.messages[-1]
    new = stored(encoding).features(table_of(tmp_path, "a,k\n,\n7,v\n"))
    assert_array_equal(new, [[mean, 1, 1, 0, 1], [7, 0, 0, 1, 0]])


def test_columns_complete_in_training_are_filled_but_not_marked(tmp_path):
    table = table_of(tmp_path, "a,b,y\n1,2,3\n3,4,5\n5,9,1\n")
    encoding = encoding_of(table, missing="mean")
    assert encoding.names == ["a", "b"]
    new = stored(encoding).features(table_of(tmp_path, "a,b\n,7\n"))
    assert_array_equal(new, [[3, 7]])


def test_rows_without_a_target_are_left_out_where_columns_are_filled(tmp_path):
    table, encoding = learn_encoding(table_of(tmp_path, MISSING), "y", missing="mean")
    assert "1 of 6 rows left out: the target 'y' is missing" in encoding.messages[0]
    mean = (1 + 3 + 8 + 4) / 4  # of the rows that have a target
    expected = [[1, 1, 0], [mean, 0, 1], [3, 1, 0], [8, 1, 0], [4, 0, 1]]
    assert_array_equal(encoding.features(table), expected)
    assert_array_equal(encoding.response(table), [1, 2, 3, 4, 5])
    with pytest.raises(TableError, match="the target 'y' is missing in every row"):
        encoding_of(table_of(tmp_path, "a,y\n1,\n2,NA\n"), missing="mean")


def test_infinite_and_empty_columns_are_not_filled(tmp_path):
    for content, words in {
        "a,y\n1,3\n,5\ninf,1\n2,2\n": r"1 cell infinite.*'a' \(1\), the first in row 3",
        "a,b,y\n1,,1\n2,,2\n": "'b' is empty",
    }.items():
        with case(content), pytest.raises(TableError, match=words):
            encoding_of(table_of(tmp_path, content), missing="mean")


# The format of numbers, and blanks around strings: what was learned decides


def exact(write, sep, quote=""):
    """A table in which y = x + f / 100 to the last digit, f written by a function."""
    x = np.round(B, 1)
    f = np.round(np.abs(A)).astype(int) + 1000
    rows = zip(map(point, x), map(write, f.tolist()), map(point, x + f / 100), strict=True)
    return text([sep.join("xfy"), *(sep.join([a, f"{quote}{b}{quote}", c]) for a, b, c in rows)])


THOUSANDS = "{:,}".format
FITTED = {
    "thousands, commas": exact(THOUSANDS, ",", '"'),
    "thousands, semicolons": exact(THOUSANDS, ";"),
    "plain": exact(str, ","),
    "decimal comma": exact(lambda f: f"{f / 1000:.3f}", ";").replace(b".", b","),
}
EITHER = [f"x{sep}f\n1{sep}8,033\n2{sep}1,500\n" for sep in "\t;|"]
EITHER += [content.replace("\n1", "\n1,0").replace("\n2", "\n2,0") for content in EITHER]


@pytest.fixture
def features_by(tmp_path):
    """Columns x and f of a table as read by a model of another table, and the warnings about it."""
    encodings = {name: encoding_of(table_of(tmp_path, content)) for name, content in FITTED.items()}

    def read(name, content):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            features = stored(encodings[name]).features(table_of(tmp_path, content))
        return features.tolist(), " ".join(str(warning.message) for warning in caught)

    return read


@pytest.mark.parametrize("content", EITHER)
def test_a_comma_is_what_it_was_in_training(features_by, content):
    """The separator of the new table and its other columns do not matter."""
    for name in ("thousands, commas", "thousands, semicolons"):
        features, messages = features_by(name, content)
        assert features == [[1, 8033], [2, 1500]]
        assert ("column 'x'" in messages and "'1,0' is 1" in messages) == ("1,0" in content)
    assert features_by("decimal comma", content)[0] == [[1, 8.033], [2, 1.5]]
    message = r"column 'f' holds '8,033', which may be 8.033 or 8033"
    with pytest.raises(TableError, match=message):
        features_by("plain", content)


def test_another_format_than_that_of_training_is_read_with_a_note_or_refused(features_by):
    features, messages = features_by("plain", "x;f\n1,5;8033,25\n2;1,500\n")
    assert features == [[1.5, 8033.25], [2, 1.5]]
    assert "'1,5' is 1.5" in messages and "'8033,25' is 8033.25" in messages
    where_commas_separate = features_by("decimal comma", "x,f\n1,8.033\n2,1.500\n")
    assert where_commas_separate == ([[1, 8.033], [2, 1.5]], "")
    for name, content, words in (
        ("thousands, commas", "x;f\n1;1,500\n1;8033,25\n", "'f' holds '8033,25' in row 2"),
        ("decimal comma", "x;f\n1;2.345\n2;1.500\n", "'2.345', which may be 2.345 or 2345"),
        ("plain", "x;f\n1;2\n2;n.d.\n", "'f' holds .*'n.d.'"),
    ):
        with case(name, content), pytest.raises(TableError, match=words):
            features_by(name, content)


def test_other_columns_settle_what_a_comma_is_in_training(tmp_path):
    for mark, value in {",": "1", ".": "1000"}.items():
        rows = [f"{1000 + 9 * i:,}\t0{mark}{i}5\t{i}" for i in range(N)]
        encoding = encoding_of(table_of(tmp_path, text(["f\tg\ty", *rows])))
        assert f"'1,000' is {value}." in " ".join(encoding.messages)
        assert [column.decimal for column in encoding.columns] == [mark, "," * (mark == ",")]


def test_blanks_around_strings_are_ignored(tmp_path):
    kinds = [("a", " b", "a ", "b")[i % 4] for i in range(N)]
    for name, content in (
        ("t.csv", with_column(kinds)),
        ("t.parquet", as_parquet({"a": A, "c": kinds, "y": Y})),
    ):
        table = read_table(put(tmp_path / name, content))[0]
        encoding = encoding_of(table)
        assert encoding.names == ["a", "c_a", "c_b"]
        assert_array_equal(encoding.features(table)[:, 2], [kind.strip() == "b" for kind in kinds])
    psql = table_of(tmp_path, " a | c | y \n 1.5 | b | 2\n 2.5 |   | 3\n 3.5 | NA | 4\n")
    assert_array_equal(stored(encoding).features(psql.slice(0, 1)), [[1.5, 0, 1]])
    assert psql.column("c").null_count == 2
    with pytest.raises(TableError, match=r"'c' holds 'd'.*'a', 'b'.*row 1"):
        stored(encoding).features(table_of(tmp_path, "a,c\n1, d\n2, b\n"))
