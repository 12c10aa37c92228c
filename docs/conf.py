"""Sphinx: the site is built from the pages in this folder and from the docstrings. Run it by ``tools/docs``."""

from pubsub_lib import __version__

project = "pubsub_lib"
author = "pubsub_lib developers"
copyright = author  # noqa: A001 - Sphinx's name
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"pubsub_lib {release}"
templates_path = ["_templates"]

# A link to a heading must lead to a heading: "page.md#some-heading".
myst_heading_anchors = 4

# A block in a language without a lexer (the two terminals of the walk-through) is plain text.
suppress_warnings = ["misc.highlighting_failure"]

# The docstrings of modules are written for readers of the source, in the order of the source.
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
