"""The gallery: every example runs to its end, draws, is not warned, and leaves nothing behind."""

import ast
import io
import os
import re
import runpy
import warnings
from pathlib import Path

import pytest

import olsen
from followup_formulas import FORMULAS
from loops import case

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

FOLDER = Path(__file__).parents[1] / "examples"
PAGES = sorted(FOLDER.glob("*/plot_*.py"))
CONF = FOLDER.parent / "docs" / "conf.py"
PACKAGE = Path(olsen.__file__).parent
NEEDS = {
    "plot_dask": ("dask.distributed",),
    "plot_larger_than_memory": ("pyarrow",),
    "plot_pipeline": ("skops",),
}


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An empty folder to run in; environment, settings of matplotlib and figures are as before when
    it is over.
    """
    environment = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda *args, **kwargs: None)
    with matplotlib.rc_context():
        yield tmp_path
    plt.close("all")
    os.environ.clear()
    os.environ.update(environment)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs(page, elsewhere, capsys):
    for library in NEEDS.get(page.stem, ()):
        pytest.importorskip(library)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names = runpy.run_path(str(page), run_name="__main__")
        figures = [plt.figure(number) for number in plt.get_fignums()]
        for figure in figures:
            figure.savefig(
                io.BytesIO(), dpi=40
            )  # texts and layouts that cannot be drawn are found here
    assert [str(warning.message) for warning in caught if _is_ours(warning, page)] == []
    assert figures
    for figure in figures:
        assert any(ax.get_xlabel() or ax.get_ylabel() for ax in figure.axes), (
            "a figure says nowhere what it shows"
        )
    assert capsys.readouterr().out.strip(), "the text rests on numbers, but nothing was printed"
    assert list(elsewhere.iterdir()) == []
    if page.stem in FORMULAS:
        FORMULAS[page.stem](names)


def _is_ours(warning, page):
    """Whether a warning names a line of the page, as those of the package do for their users, or of
    the package.
    """
    return Path(warning.filename) == page or PACKAGE in Path(warning.filename).parents


def test_code_fits_the_column_of_its_page():
    """The formatter breaks code, but neither strings nor docstrings."""
    for page in PAGES:
        source = page.read_text(encoding="utf-8")
        code = source[source.index('\n"""\n', 3) :].splitlines()
        long = [line for line in code if len(line) > 88 and not line.startswith("#")]
        assert not long, (page.stem, long)


def test_pages_are_gallery_pages():
    """A title with its line, text in cells, no download, and no link to a page that is not there."""
    for page in PAGES:
        with case(page.stem):
            source = page.read_text(encoding="utf-8")
            title, line = re.match(r'"""\n(.+)\n(=+)\n', source).groups()
            assert len(line) >= len(title)
            assert source.count("\n# %%\n") >= 2
            assert not re.search(r"\bfetch_\w+|urlopen|urlretrieve|https?://", source)
            for heading, under in re.findall(r"^# (\S.*)\n# (-{3,})$", source, flags=re.MULTILINE):
                assert len(under) >= len(heading)
    headers = [
        FOLDER / "GALLERY_HEADER.rst",
        *(page.with_name("GALLERY_HEADER.rst") for page in PAGES),
    ]
    texts = [path.read_text(encoding="utf-8") for path in (*PAGES, *headers)]
    linked = {
        name for text in texts for name in re.findall(r"sphx_glr_auto_examples_(\w+\.py)", text)
    }
    assert linked and linked <= {f"{page.parent.name}_{page.name}" for page in PAGES}
    sections = ast.literal_eval(
        re.search(r"^SECTIONS = (\{.*?^\})", CONF.read_text(encoding="utf-8"), re.M | re.S)[1]
    )
    ordered = {(folder, f"plot_{name}.py") for folder, names in sections.items() for name in names}
    assert ordered == {(page.parent.name, page.name) for page in PAGES}, (
        "docs/conf.py has the order of the pages"
    )
