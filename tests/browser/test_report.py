"""The report in a real browser: nothing fetched, nothing complained about, every figure to be seen."""

import numpy as np
import pytest

from olsen import cli

pytestmark = pytest.mark.browser


def page_of(browser, path, scheme="light", width=1200, bypass=False):
    """The page at a path, with what the browser complained about and what it asked the network for."""
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=bypass
    )
    page = context.new_page()
    complaints = []
    requests = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    return page, complaints, [url for url in requests if not url.startswith(("file:", "data:"))]


def write_table(path, long_names=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    y = X @ [1.0, -1.0, 0.5, 0.3] + 0.2 * rng.standard_normal(len(X))
    regions = ["<b>north</b>", "south & <i>east</i>"] * (
        len(X) // 2
    )  # what a careless page would show as markup
    rows = [
        ",".join([*map(str, row), region, str(t)])
        for row, region, t in zip(X, regions, y, strict=True)
    ]
    names = ["W" * 200, "\u6e29\u5ea6" * 40, "g_" * 90] if long_names else ["a", "b", "c"]
    path.write_text("\n".join([",".join([*names, "<i>d</i>,place,y"]), *rows]), encoding="utf-8")
    return path


@pytest.fixture(
    scope="module", params=["text and numbers", "long names", "few rows", "embedded", "ensemble"]
)
def report(request, tmp_path_factory):
    """The page of a fit, named after its model: weights of schemes, or a curve of errors over
    sizes.
    """
    kind = "ensemble" if request.param == "ensemble" else "adaptive"
    folder = tmp_path_factory.mktemp("report")
    arguments = [
        "fit",
        "--members",
        "20",
        "--model",
        kind,
        "--report",
        str(folder / f"{kind}.html"),
    ]
    if request.param != "embedded":
        table = write_table(folder / "data.csv", request.param == "long names")
        if request.param == "few rows":
            table.write_text("\n".join(table.read_text().splitlines()[:16]))
        arguments += ["--target", "y", str(table)]
    assert cli.main(arguments) == 0
    return folder / f"{kind}.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_report_opens_without_a_word_and_without_the_network(browser, report, scheme, width):
    page, complaints, requests = page_of(browser, report, scheme, width)
    assert complaints == [] and requests == []
    has_sizes = report.stem == "ensemble"
    assert page.locator("figure#schemes table").count() == (not has_sizes)
    assert has_sizes or page.locator("figure#schemes table").is_visible()
    assert page.locator("figure#curve").count() == has_sizes
    for name in (*["curve"] * has_sizes, "effects", "predicted", "residuals"):
        box = page.locator(f"figure#{name} svg").bounding_box()
        assert box["width"] > 250 and box["height"] > 60, name
        assert page.locator(f"figure#{name} svg").is_visible()
    errors = 1 + has_sizes  # that of infinitely many members is known there
    assert page.locator("#errors tbody tr").count() == errors, "other models only by --compare"
    assert page.locator("figure#predicted circle").count() >= 15
    assert page.locator("pre").inner_text().startswith("olsen ")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
        "nothing sticks out at the side"
    )
    assert page.locator("i, b").count() == 0, "names from the table stay text"
    page.context.close()


@pytest.mark.parametrize("width", [390, 1200])
def test_no_text_of_a_chart_is_cut_off(browser, report, width):
    page, _, _ = page_of(browser, report, width=width)
    cut_off = page.evaluate("""() => [...document.querySelectorAll("svg text")].filter(text => {
        const inner = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
        return inner.left < frame.left - 1 || inner.right > frame.right + 1 ||
               inner.top < frame.top - 1 || inner.bottom > frame.bottom + 1;
    }).map(text => text.textContent)""")
    assert cut_off == []
    page.context.close()


def test_bars_end_where_the_axis_says(browser, report):
    """Lengths of bars against their values: one scale for all, and zero where the axis has it."""
    page, _, _ = page_of(browser, report)
    bars = page.evaluate("""() => [...document.querySelectorAll("figure#effects rect")].map(bar => [
        bar.querySelector("title").textContent, +bar.getAttribute("x"), +bar.getAttribute("width"),
        bar.getAttribute("class")])""")
    zero = float(page.locator("figure#effects line.axis").get_attribute("x1"))
    values = [float(title.rpartition(": ")[2].partition(" ±")[0]) for title, *_ in bars]
    scale = bars[0][2] / abs(values[0])
    for value, (_, x, width, style) in zip(values, bars, strict=True):
        assert width == pytest.approx(max(abs(value) * scale, 0.5), abs=0.3)
        assert (x if value > 0 else x + width) == pytest.approx(zero, abs=0.6)
        assert style == ("plus" if value > 0 else "minus")
    page.context.close()


def test_columns_are_found_by_parts_of_their_names(browser, report):
    page, complaints, _ = page_of(browser, report)
    rows = page.locator("#columns tbody tr:visible")
    box = page.locator("#search")
    said = page.locator("#found")
    everything = page.locator("#columns tbody tr").count()
    assert rows.count() == min(20, everything) and said.inner_text().endswith(
        f"of {everything} shown"
    )
    column = page.locator("#columns tbody tr").last.get_attribute("data-name")
    box.fill(column.upper())
    assert rows.count() >= 1 and column in [row.get_attribute("data-name") for row in rows.all()]
    box.fill("no such column")
    assert rows.count() == 0 and said.inner_text() == "no column has such a name"
    box.fill("")
    assert rows.count() == min(20, everything) and complaints == []
    page.context.close()


def test_without_scripts_all_columns_are_there(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert (
        page.locator("#columns tbody tr:visible").count()
        == page.locator("#columns tbody tr").count()
        > 3
    )
    assert not page.locator("#search").is_visible()
    context.close()


def test_spectra_have_a_profile(browser, report):
    page, _, _ = page_of(browser, report)
    embedded = "soil carbon" in page.content()
    assert page.locator("figure#profile svg").count() == embedded
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_axe_finds_no_violation(browser, report, axe, tmp_path, scheme, width):
    compared = tmp_path / "compared.html"
    table = write_table(tmp_path / "data.csv")
    assert (
        cli.main(
            ["compare", str(table), "--target", "y", "--folds", "2", "--report", str(compared)]
        )
        == 0
    )
    for path in (report, compared):
        page, _, _ = page_of(browser, path, scheme, width, bypass=True)
        axe(page)
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_of_a_comparison(browser, tmp_path, scheme, width):
    table = write_table(tmp_path / "data.csv")
    arguments = ["compare", str(table), "--target", "y", "--folds", "2", "--jobs", "1"]
    assert cli.main([*arguments, "--report", str(tmp_path / "page.html")]) == 0
    page, complaints, requests = page_of(browser, tmp_path / "page.html", scheme, width)
    assert complaints == [] and requests == []
    assert (
        page.locator("#models tbody tr").count() == 7
        and page.locator("#models tr.best").count() == 1
    )
    assert page.locator("figure#plot circle").count() == 7
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.context.close()


def test_a_screenshot_is_not_empty(browser, report, tmp_path):
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.goto(report.as_uri())
    page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert (tmp_path / "report.png").stat().st_size > 20_000
