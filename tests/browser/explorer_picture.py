"""Draw docs/_static/explorer.png, the picture that leads to the explorer: after a change of its page.

python tests/browser/explorer_picture.py      # in the environment of `make test-browser`
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from conftest import FLAGS
from olsen import explorer

PICTURE = Path(__file__).parents[2] / "docs" / "_static" / "explorer.png"
SIZE = {"width": 1140, "height": 870}


def main():
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as session:
        written = explorer.write(Path(folder) / "explorer.html")
        browser = session.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(written.as_uri())
        page.wait_for_selector("svg path", state="attached")
        picture = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    picture.convert("RGB").quantize(256).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
