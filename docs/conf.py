"""Settings of the site. `make docs` builds it into docs/_build/html; a warning is an error.

Nothing on a page comes from elsewhere: formulas are MathML, written at build time, styles and
scripts are those of the installed packages, and the inventories of other projects, which
intersphinx needs for links to them, are written by _ext/elsewhere.py. OLSEN_GALLERY=0 leaves out
the examples, which take most of the time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import olsen  # noqa: E402

project = "olsen"
author = "the olsen authors"
copyright = author
version = release = olsen.__version__

GALLERY = os.environ.get("OLSEN_GALLERY", "1") != "0" and any(
    (HERE.parent / "examples").glob("*/plot_*.py")
)

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "elsewhere",
    "mathml",
    "names",
    "explorer_page",
    "ours",
    "pictures",
    "public_names",
    "repository",
    "status",
    "subscripts",
    "tables",
    "wrapped",
    *(["sphinx_gallery.gen_gallery"] if GALLERY else []),
]
exclude_patterns = [
    "_build",
    "_ext",
    "_templates",
    *([] if GALLERY else ["auto_examples"]),
]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    # Fields of dataclasses, named in their own docstrings: they have no page of their own.
    ("py:obj", "score|risk|k|max_features|max_samples|nonzeros|strength"),
    # A parameter; `make coverage` installs a package of this name, which autolink then finds.
    ("py:obj", "coverage"),
]
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold functions
default_role = (
    "autolink"  # `name` in a docstring is a link where it names something public
)

# Markdown

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# The reference

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say it in words
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False  # the template has them, each with its status

# Examples, in the order in which they are best read

SECTIONS = {
    "start": ["what_is_it", "spectra", "how_many_members", "pipeline"],
    "real_data": ["house_prices", "sparse_signals", "genes", "groups", "shap_onnx"],
    "uncertainty": ["intervals", "coefficients"],
    "theory": [
        "ridge_equivalence",
        "interpolation_peak",
        "rows_and_columns",
        "few_or_many",
        "equal_risk",
        "dropout",
    ],
    "scale": ["larger_than_memory", "dask", "gpu"],
}


def place_of_section(folder):
    return list(SECTIONS).index(Path(folder).name)


class LearningOrder:
    """Sort key of the examples in one section."""

    def __init__(self, folder):
        self.names = SECTIONS.get(Path(folder).name, [])

    def __call__(self, filename):
        return self.names.index(filename.removeprefix("plot_").removesuffix(".py"))


sphinx_gallery_conf = {
    "subsection_order": place_of_section,
    "within_subsection_order": LearningOrder,
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"[\\/]plot_",
    "ignore_pattern": r"(^|[\\/])(?!plot_)[^\\/]*\.py$",
    "reference_url": {"olsen": None},
    "backreferences_dir": "api/generated/examples",
    "doc_module": ("olsen",),
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,  # that page would load scripts from elsewhere
    "abort_on_example_error": True,
    "default_thumb_file": str(HERE / "images" / "soil_carbon.png"),
}

# The look

html_theme = "pydata_sphinx_theme"
html_title = "olsen"
html_static_path = ["_static"]
html_css_files = ["olsen.css"]
html_js_files = [("olsen.js", {"defer": "defer"})]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo_dark.svg",
        "alt_text": "olsen, home",
    },
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": {  # pages of wide tables have none, which leaves the tables its place
        "**": ["page-toc"],
        "benchmarks": [],
        "theory/paper": [],
    },
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "getting_started": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.highlight-output) > div.highlight > pre"


def without_gallery(app, docname, source):
    """A quick build has no examples to lead to."""
    source[0] = source[0].replace("auto_examples/index\n", "")


def setup(app):
    if not GALLERY:
        app.connect("source-read", without_gallery)
