"""The report in a real browser: nothing fetched, nothing complained about, every figure to be seen."""

import shutil

import numpy as np
import pytest

from olsen import cli

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("no Chromium here; `make test-browser` installs one")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=["text and numbers", "embedded"])
def report(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    arguments = ["fit", "--members", "20", "--report", str(folder / "report.html")]
    if request.param != "embedded":
        rng = np.random.default_rng(0)
        X = rng.standard_normal((80, 4))
        y = X @ [1.0, -1.0, 0.0, 0.3] + 0.2 * rng.standard_normal(len(X))
        places = ["<b>north</b>", "south & <i>east</i>"] * (len(X) // 2)  # what a careless page would show as markup
        rows = [",".join([*map(str, row), place, str(t)]) for row, place, t in zip(X, places, y, strict=True)]
        (folder / "data.csv").write_text("\n".join(["a,b,c,<i>d</i>,place,y", *rows]))
        arguments += ["--target", "y", str(folder / "data.csv")]
    assert cli.main(arguments) == 0
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_report_opens_without_a_word_and_without_the_network(browser, report, scheme, width):
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    for name in ("curve", "coefficients", "predicted", "residuals"):
        box = page.locator(f"figure#{name} svg").bounding_box()
        assert box["width"] > 250 and box["height"] > 60, name
        assert page.locator(f"figure#{name} svg").is_visible()
    assert page.locator("#errors tbody tr").count() == 5
    assert page.locator("figure#predicted circle").count() >= 80
    assert page.locator("pre").inner_text().startswith("olsen ")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out at the side"
    assert page.locator("i, b").count() == 0, "names from the table stay text"
    context.close()


def test_a_picture_for_the_eye(browser, report, tmp_path):
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.goto(report.as_uri())
    page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert (tmp_path / "report.png").stat().st_size > 20_000
