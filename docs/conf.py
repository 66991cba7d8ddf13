"""Settings of the documentation site (``make docs``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from ropelime import __version__

project = "RoPE-LIME"
author = "The RoPE-LIME developers"
version = release = __version__
project_copyright = author

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_markdown_builder",
    "myst_nb",
    "site_parts",
]
exclude_patterns = ["_build", "_ext", "gallery.py"]
nitpicky = False

# Anchors as GitHub makes them, so that a link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "off"  # the outputs are saved in the notebooks; the tests run them
nb_mime_priority_overrides = [("markdown", "image/png", 0), ("markdown", "text/plain", 10)]
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"RoPE-LIME {release}"
html_favicon = "../src/ropelime/web/static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "source_repository": "https://github.com/ropelime/ropelime/",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_exclude = ".linenos, .gp"

markdown_http_base = ""
markdown_uri_doc_suffix = ".md"
