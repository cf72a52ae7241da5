"""The site: Sphinx over the Markdown of the repository, which stays as plain as GitHub shows it.
``make docs`` builds it.

Three things are made on the way, so that no page has to speak Sphinx's language: the navigation is the lists of
docs/index.md, a comment ``<!-- api: agentr.read.run -->`` becomes the docstrings of that module, and diagrams and
formulas become SVG and MathML, which a reader's browser shows without a script and without a network.
"""

import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from latex2mathml.converter import convert
from mermaid_render import mermaid_to_svg
from sphinx.application import Sphinx

import agentr

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

project = "agentr"
author = "the authors of agentr"
project_copyright = "the authors of agentr. Apache-2.0"
version = release = agentr.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "agentr/models/weights/nano/README.md"]
exclude_patterns = [
    f"{path.name}/**" for path in ROOT.iterdir() if path.is_dir() and path.name not in ("docs", "agentr")
]
source_suffix = {".md": "markdown"}
highlight_language = "text"

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = {"mermaid"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

templates_path = ["templates"]
html_theme = "pydata_sphinx_theme"
html_title = "agentr"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"**": ["navigation.html"]}
html_theme_options = {
    "logo": {"text": "agentr"},
    "navbar_center": [],
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

CONTENTS = re.compile(r"^## (?P<caption>.+)$|^- \[(?P<title>[^\]]+)\]\((?P<page>[^)]+)\.md\)", re.MULTILINE)
API = re.compile(r"^<!-- api: (?P<module>[\w.]+) -->$", re.MULTILINE)


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds to a page what its plain Markdown stands for."""
    if page == root_doc:
        source[0] += navigation(source[0])
    source[0] = API.sub(lambda found: f"```{{eval-rst}}\n.. automodule:: {found['module']}\n```", source[0])


def navigation(contents: str) -> str:
    """Returns the lists of the contents as tables of contents, one for each heading."""
    trees: list[str] = []
    for found in CONTENTS.finditer(contents):
        if found["caption"]:
            trees.append(f":hidden:\n:caption: {found['caption']}\n")
        else:
            trees[-1] += f"\n{found['title']} <{found['page']}>"
    return "".join(f"\n\n```{{toctree}}\n{tree}\n```" for tree in trees)


class Mermaid(Directive):
    """A diagram, drawn while the site is built."""

    has_content = True
    drawn = 0

    def run(self) -> list[nodes.Node]:
        Mermaid.drawn += 1
        drawing = mermaid_to_svg("\n".join(self.content), theme="neutral").decode()
        (name,) = set(re.findall(r'<svg[^>]*? id="([\w-]+)"', drawing)) or {""}
        own = drawing.replace(name, f"diagram-{Mermaid.drawn}") if name else drawing
        return [nodes.raw("", f'<div class="diagram">{own}</div>', format="html")]


def formula(visitor, node: nodes.Element) -> None:
    """Writes a formula as MathML."""
    block = isinstance(node, nodes.math_block)
    shown = convert(node.astext(), display="block" if block else "inline")
    visitor.body.append(f'<div class="formula">{shown}</div>' if block else shown)
    raise nodes.SkipNode


def readable(
    app: Sphinx, what: str, name: str, thing, options, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Writes three dots for a default that is made anew each time, which a dataclass shows as no Python."""
    return signature and signature.replace("<factory>", "..."), returns


def without_object(app: Sphinx, document: nodes.document) -> None:
    """Takes out the line that says of a class that it is derived from object."""
    for line in list(document.findall(nodes.paragraph)):
        if line.astext() == "Bases: object":
            line.parent.remove(line)


def written(app: Sphinx, failure: Exception | None) -> None:
    """Leads from the root of the site to its first page."""
    if failure is None and app.builder.format == "html":
        first = f"{root_doc}.html"
        text = (
            '<!doctype html>\n<meta charset="utf-8">\n<title>agentr</title>\n'
            f'<meta http-equiv="refresh" content="0; url={first}">\n'
        )
        Path(app.outdir, "index.html").write_text(f'{text}<a href="{first}">agentr</a>\n', encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read)
    app.connect("autodoc-process-signature", readable)
    app.connect("doctree-read", without_object)
    app.connect("build-finished", written)
    app.add_directive("mermaid", Mermaid)
    app.add_html_math_renderer("mathml", inline_renderers=(formula, None), block_renderers=(formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
