"""The documentation site, built by Sphinx: ``nox -s site`` writes it to ``build/site``, offline.

The source folder is the repository, so that links between pages are the same here and there. A link to a file that is
not a page leads to the repository; a broken link is a warning, and warnings are errors.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils.nodes import SkipNode

ROOT = Path(__file__).resolve().parent.parent
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY, ADDRESS = (_PROJECT["urls"][name] for name in ("Repository", "Documentation"))

project = "regard"
author = "The regard developers"
copyright = author
release = re.search(r'__version__ = "(.+?)"', (ROOT / "src/regard/_version.py").read_text(encoding="utf-8"))[1]  # type: ignore[index]

root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CHANGELOG.md", "docs/**.md"]
exclude_patterns = [".*", "build", "src", "csrc", "tests", "benchmarks", "examples", "**/node_modules"]
extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    *("sphinx_copybutton", "sphinxext.opengraph", "notfound.extension"),
]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
suppress_warnings = ["ref.python"]  # an object that two packages export has two places; either will do
autodoc_default_options = {
    "members": True,
    "imported-members": True,
    "member-order": "bysource",
}
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"regard {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options: dict[str, Any] = {
    "top_of_page_buttons": [],
    "source_repository": REPOSITORY,
    "footer_icons": [{"name": "Repository", "url": REPOSITORY, "html": "Repository", "class": ""}],
}
html_baseurl = ADDRESS
html_logo = "_static/icon.svg"
html_favicon = "_static/icon.svg"

copybutton_prompt_text = "$ "  # only what is typed is copied
ogp_site_url = ADDRESS
ogp_image = "card.png"
ogp_social_cards = {"enable": False}
notfound_urls_prefix = f"/{ADDRESS.rstrip('/').rpartition('/')[2]}/"

# The order of pages in the navigation; the README itself has none, as it is also the front page of the repository.
CONTENTS = """
```{toctree}
:hidden:
:caption: Learn
docs/lesson
docs/learning
docs/gpt
docs/exercises
docs/indirect-objects
docs/steering
docs/punctuation
```
```{toctree}
:hidden:
:caption: How to
docs/command
docs/explorer
docs/models
docs/images
docs/embeddings
docs/interventions
docs/attribution
docs/circuits
docs/why
docs/training
docs/frameworks
docs/transformers
docs/scale
```
```{toctree}
:hidden:
:caption: Reference
:glob:
docs/attention
docs/gradients
docs/formats
docs/glossary
docs/measurements
docs/api/regard
docs/api/[a-q]*
docs/api/[s-z]*
```
```{toctree}
:hidden:
:caption: Inside
docs/architecture
docs/kernel
docs/decisions/README
CONTRIBUTING
CODE_OF_CONDUCT
SECURITY
CHANGELOG
```
"""
DECISIONS = """
```{toctree}
:hidden:
:glob:
[0-9]*
```
"""

_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_FOREIGN = re.compile(r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>""")


EXPLORED = """
```{raw} html
<iframe class="explored" src="explored.html" loading="lazy" title="The explorer with one text"></iframe>
```
"""  # below the first paragraph of the page about the explorer


def read_page(_app: Any, name: str, content: list[str]) -> None:
    """Add the navigation and the explorer, and point links at files that are not pages to the repository."""
    page, done = [], 0
    for fence in _FENCED.finditer(content[0]):
        page += [_LINK.sub(lambda link: _target(link[1], name), content[0][done : fence.start()]), fence[0]]
        done = fence.end()
    page.append(_LINK.sub(lambda link: _target(link[1], name), content[0][done:]))
    if name == "docs/explorer":
        title, first, rest = "".join(page).split("\n\n", 2)
        page = [f"{title}\n\n{first}\n{EXPLORED}\n{rest}"]
    content[0] = "".join(page) + {root_doc: CONTENTS, "docs/decisions/README": DECISIONS}.get(name, "")


def _target(link: str, name: str) -> str:
    found = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    if (ROOT / found).is_dir():
        return f"{REPOSITORY}/tree/main/{found}"
    if found.startswith("benchmarks/") or (
        (ROOT / found).is_file() and Path(found).suffix not in (".md", ".png", ".svg", ".gif")
    ):
        return f"{REPOSITORY}/blob/main/{found}"
    return link  # a page, a picture, or a broken link, which MyST reports


def finish(app: Any, error: Exception | None) -> None:
    """Make the front page the index, and refuse what a browser would fetch from elsewhere."""
    if error:
        return
    out = Path(app.outdir)
    write_explored(out)
    for path in out.rglob("*.html"):
        if foreign := _FOREIGN.search(path.read_text(encoding="utf-8")):
            raise ValueError(f"{path} fetches from elsewhere: {foreign[0]}")
    shutil.copy(out / f"{root_doc}.html", out / "index.html")


def write_explored(out: Path) -> None:
    """Write what one text shows: a page of the explorer, and the preview image of links to the site (1200 × 630)."""
    from matplotlib.figure import Figure

    import regard
    from regard import plot

    model, trace = regard.load("minilm"), regard.Trace()
    model("The animal did not cross the street because it was too tired", trace=trace)
    regard.explore(trace, html=out / "docs/explored.html")
    style = plot.get_style()
    with style.rc_context():
        card = Figure((12, 6.3), dpi=100)
        card.text(0.05, 0.62, "regard", size=52, weight="bold")
        card.text(0.05, 0.42, "Self-attention\nyou can see through", size=26, linespacing=1.3)
        card.text(
            0.05, 0.12, "which token attends to which,\nfrom what numbers", size=15, color=style.muted, linespacing=1.4
        )
        plot.heatmap(trace, layer=3, head=1, ax=card.add_axes((0.52, 0.05, 0.45, 0.8)))
        card.savefig(out / "card.png")


BUILDING = {"config_type", "read", "load", "layers", "block", "projections", "mlp", "unused", "prefixes"}


def skip_member(app: Any, kind: str, name: str, _value: Any, _skip: bool, _options: Any) -> bool | None:
    """Document what ``regard`` exports from a package in the page of that package alone, and how to use a family."""
    if app.env.docname == "docs/api/models" and kind == "class" and name in BUILDING:
        return True  # how a family is built
    if kind != "module" or app.env.docname != "docs/api/regard":
        return None
    import regard

    pages = {path.stem for path in (ROOT / "docs/api").glob("*.md")} - {"regard"}
    return True if any(name in getattr(regard, page).__all__ for page in pages) else None


def hide_constructor(app: Any, kind: str, _name: str, value: Any, _options: Any, *_: Any) -> tuple[str, str] | None:
    """Leave out the parameters with which `regard.load` makes a model."""
    is_model = kind == "class" and app.env.docname == "docs/api/models" and hasattr(value, "config_type")
    return ("", "") if is_model else None


def escape_bars(_app: Any, _kind: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Keep |x| of a docstring, which reStructuredText reads as a substitution, outside of code."""
    lines[:] = [
        "``".join(part if n % 2 else part.replace("|", r"\|") for n, part in enumerate(line.split("``")))
        for line in lines
    ]


def write_math(writer: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers show by themselves."""
    block = node.tagname == "math_block"
    formula = latex2mathml.converter.convert(node.astext(), display="block" if block else "inline")
    writer.body.append(formula)
    raise SkipNode


def setup(app: Any) -> None:
    """Register the hooks."""
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("source-read", read_page)
    app.connect("build-finished", finish)
