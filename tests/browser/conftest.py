"""One browser for all tests of pages, and what finds barriers in them.

The rules of accessibility are those of axe-core (Deque, MPL-2.0), which is not part of this
package: OLSEN_AXE names its axe.min.js, or npm installs it into a temporary folder; where neither
is to be had these tests are skipped.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.fail("no Chromium here; `make test-browser` installs one")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe_source(tmp_path_factory):
    """The source of axe-core."""
    if "OLSEN_AXE" in os.environ:
        return Path(os.environ["OLSEN_AXE"]).read_text(encoding="utf-8")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core is not here: set OLSEN_AXE to its axe.min.js, or install npm")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--prefix", folder, "axe-core@4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(
            "npm could not install axe-core, set OLSEN_AXE to its axe.min.js:"
            f" {done.stderr.strip()[-200:]}"
        )
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def axe(axe_source):
    """Raise for every violation on a page, whose context bypasses its policy of content."""

    def check(page):
        page.evaluate(axe_source)
        results = page.evaluate("axe.run()")
        assert len(results["passes"]) > 15
        assert {
            v["id"]: [node["html"] for node in v["nodes"]][:3] for v in results["violations"]
        } == {}

    return check
