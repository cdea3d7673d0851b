"""What the wheel and the source archive hold: all that belongs into them, and nothing else.

python tests/dist/check_archives.py dist
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = [
    "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "Makefile",
    "pyproject.toml", "setup.py", "PKG-INFO", "src/olsen/__init__.py", "src/olsen/_kernel/kernels.c",
    "tests/conftest.py", "tests/public_api.txt", "conda/recipe.yaml",
]
WRITTEN_BY_THE_BUILD = re.compile(r"PKG-INFO|setup\.cfg|src/olsen\.egg-info/[\w.-]+")
# Names that have no business in an archive, and what would be in a file that has no business in the project.
UNWANTED = re.compile(
    r"^(out|dist|build)/|(^|/)(\.(?!gitignore$)|__pycache__)|\.(py[co]|nbc|nbi|pem|key|env|log|orig|rej)$"
)
SECRETS = re.compile(rb"BEGIN [A-Z ]*PRIVATE KEY|/(home|root|work|Users)/\.?[a-z]+/")


def problems_of_wheel(path):
    """Every file of the package is there, and no other."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        yield from suspicious({name: archive.read(name) for name in names})
    sources = {f"olsen/{name}" for name in tracked("src/olsen") if not name.endswith((".c", ".h"))}
    files = {name for name in names if not re.match(r"olsen-[^/]+\.dist-info/", name)}
    compiled = {name for name in files if re.fullmatch(r"olsen/_kernel/_native[\w.-]*\.(so|pyd)", name)}
    if len(compiled) != 1:
        yield f"holds {len(compiled)} compiled modules"
    files -= compiled
    yield from (f"lacks {name}" for name in sorted(sources - files))
    yield from (f"holds {name}, which is not in the project" for name in sorted(files - sources))
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield "lacks the licence"


def problems_of_sdist(path):
    with tarfile.open(path) as archive:
        files = {m.name.partition("/")[2]: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
    yield from suspicious(files)
    yield from (f"lacks {name}" for name in NEEDED if name not in files)
    unknown = (name for name in sorted(set(files) - set(tracked("."))) if not WRITTEN_BY_THE_BUILD.fullmatch(name))
    yield from (f"holds {name}, which is not in the project" for name in unknown)


def suspicious(files):
    """Files that look private, by name or by content."""
    for name, content in sorted(files.items()):
        if UNWANTED.search(name):
            yield f"holds {name}"
        if not name.startswith("tests/dist/") and (match := SECRETS.search(content)):
            yield f"holds {name}, in which stands {match[0].decode()!r}"


def tracked(folder):
    """Files of the project below a folder, relative to it: those that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT / folder, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / folder / name).is_file()]


def main(folder):
    failed = False
    for pattern, problems_of in (("*.whl", problems_of_wheel), ("*.tar.gz", problems_of_sdist)):
        (path,) = Path(folder).glob(pattern)
        problems = list(problems_of(path))
        failed = failed or bool(problems)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {'; '.join(problems) or 'in order'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
