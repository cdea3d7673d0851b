"""One browser for all tests of pages."""

import shutil

import pytest

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
