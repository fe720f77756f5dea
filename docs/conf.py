"""The documentation site, built by Sphinx: ``nox -s site`` writes it to ``build/site``, offline.

The source folder is the repository, so that links between pages are the same here and there. A link to a file that is
not a page leads to the repository; a broken link is a warning, and warnings are errors.
"""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import os
import posixpath
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils.nodes import SkipNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import addresses  # noqa: E402

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY, ADDRESS = (_PROJECT["urls"][name] for name in ("Repository", "Documentation"))
PREFIX = f"/{ADDRESS.rstrip('/').rpartition('/')[2]}/"  # of all addresses of the site

project = "regard"
author = "The regard developers"
copyright = author
release = re.search(r'__version__ = "(.+?)"', (ROOT / "src/regard/_version.py").read_text(encoding="utf-8"))[1]  # type: ignore[index]
IS_RELEASED = os.environ.get("GITHUB_REF_TYPE") == "tag"
SOURCES = f"{REPOSITORY}/blob/{f'v{release}' if IS_RELEASED else 'main'}"

root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CHANGELOG.md", "docs/**.md"]
exclude_patterns = [".*", "build", "src", "csrc", "tests", "benchmarks", "examples", "**/node_modules"]
extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"),
    *("sphinx.ext.linkcode", "sphinx.ext.intersphinx"),
    *("sphinx_copybutton", "sphinxext.opengraph", "notfound.extension"),
]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
suppress_warnings = ["ref.python"]  # an object that two packages export has two places; either will do
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
add_module_names = False
# Where others document what signatures name. As the build needs no network, the names stand in a file.
intersphinx_mapping = {"others": ("https://", "docs/inventory.txt")}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"regard {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {root_doc: [], "**": ["sidebar-nav-bs"]}
html_theme_options: dict[str, Any] = {
    "logo": {"text": "regard", "image_light": "_static/icon.svg", "image_dark": "_static/icon-dark.svg"},
    "icon_links": [{"name": "Repository", "url": REPOSITORY, "icon": "fa-brands fa-github"}],
    # `.ci/release.py pages` writes the list of versions.
    "switcher": {"json_url": f"{PREFIX}versions.json", "version_match": release if IS_RELEASED else "dev"},
    "check_switcher": False,
    "show_version_warning_banner": True,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
    "use_edit_page_button": True,
    "navigation_depth": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
_USER, _NAME = REPOSITORY.split("/")[-2:]
html_context = {
    "default_mode": "auto",
    "github_user": _USER,
    "github_repo": _NAME,
    "github_version": "main",
    "doc_path": ".",
}
html_baseurl = ADDRESS
html_favicon = "_static/icon.svg"

copybutton_prompt_text = "$ "  # only what is typed is copied
ogp_site_url = ADDRESS
ogp_image = "card.png"
ogp_social_cards = {"enable": False}
notfound_urls_prefix = PREFIX
notfound_context = {
    "title": "Page not found",
    "body": f"""<h1>Page not found</h1>
<p>There is no page at this address: it may have moved. Search for it, or begin at the <a href="{PREFIX}">front page</a>
or the <a href="{PREFIX}docs/tutorials.html">tutorials</a>.</p>""",
}

# What the navigation shows on top; the pages of each are those that its list names, in that order.
SECTIONS = ("docs/tutorials", "docs/how-to", "docs/reference", "docs/explanation")
LISTS = (*SECTIONS, "docs/decisions/README")

_LISTED = re.compile(r"^(?:- |\| )\[[^\]]*\]\(([^)]+)\.md\)", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"module:: ([\w.]+)")
_OUTSIDE = re.compile(r"""<a\b[^>]*\bhref=["']((?!#)[a-z]+:[^"']+)["']""")
_FOREIGN = re.compile(r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>""")


EXPLORED = """
```{raw} html
<iframe class="explored" src="explored.html" loading="lazy" title="The explorer with one text"></iframe>
```
"""  # below the first paragraph of the page about the explorer


def read_page(_app: Any, name: str, content: list[str]) -> None:
    """Add the navigation, the explorer and the API, and point links at files that are not pages to the repository."""
    page, done = [], 0
    for fence in _FENCED.finditer(content[0]):
        page += [_LINK.sub(lambda link: _target(link[1], name), content[0][done : fence.start()]), fence[0]]
        done = fence.end()
    page.append(_LINK.sub(lambda link: _target(link[1], name), content[0][done:]))
    if name == "docs/explorer":
        title, first, rest = "".join(page).split("\n\n", 2)
        page = [f"{title}\n\n{first}\n{EXPLORED}\n{rest}"]
    if name.startswith("docs/api/"):
        page.append(_api(name, content[0]))
    if listed := SECTIONS if name == root_doc else _LISTED.findall(content[0]) if name in LISTS else ():
        page.append("\n".join(("\n```{toctree}", ":hidden:", *listed, "```\n")))
    content[0] = "".join(page)


def _target(link: str, name: str) -> str:
    found = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    if (ROOT / found).is_dir():
        return f"{SOURCES.replace('/blob/', '/tree/')}/{found}"
    if found.startswith("benchmarks/") or (
        (ROOT / found).is_file() and Path(found).suffix not in (".md", ".png", ".svg", ".gif")
    ):
        return f"{SOURCES}/{found}"
    return link  # a page, a picture, or a broken link, which MyST reports


def _api(page: str, text: str) -> str:
    """Return the summary and the documentation of the classes and functions that belong to a page of the API."""
    module_name = _MODULE.findall(text)[0]
    module = importlib.import_module(module_name)
    values = {name: getattr(module, name) for name in module.__all__}
    own = {name: value for name, value in values.items() if _page_of(module_name, name, value) == page}
    summaries = ((name, (inspect.getdoc(value) or "").partition("\n\n")[0].split("\n")) for name, value in own.items())
    lines = ["", "```{eval-rst}", f".. currentmodule:: {module_name}", ""]
    lines += [f"- :obj:`{name}`: {_escaped(' '.join(summary))}" for name, summary in summaries] + [""]
    for name, value in own.items():
        if f":: {module_name}.{name}\n" not in text:
            kind = "exception" if isinstance(value, type) and issubclass(value, Exception) else ""
            lines += [f".. auto{kind or ('class' if isinstance(value, type) else 'function')}:: {name}", ""]
    return "\n".join([*lines, "```\n"]) if own else ""


def _page_of(module: str, name: str, value: Any) -> str | None:
    """Return the page of the API with an exported name: that of its package, or of a part of a large one."""
    if not (isinstance(value, type) or inspect.isroutine(value)):
        return None
    package = module.rpartition(".")[2]
    if package == "regard":
        others = {path.stem for path in (ROOT / "docs/api").glob("*.md") if "-" not in path.stem} - {"regard"}
        root = importlib.import_module("regard")
        return None if any(name in getattr(root, other).__all__ for other in others) else "docs/api/regard"
    if value.__module__.startswith(("regard.functional.masks.", "regard.functional.biases.")):
        return "docs/api/functional-rules"
    if package == "models" and (name.endswith("Config") or hasattr(importlib.import_module(module), f"{name}Config")):
        return "docs/api/models-families"
    return f"docs/api/{package}"


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the address of the source of an object in the repository, None for a field, which has none."""
    if domain != "py" or not info["module"]:
        return None
    package = Path(importlib.import_module("regard").__file__ or "").parent
    try:
        found: Any = functools.reduce(getattr, info["fullname"].split("."), importlib.import_module(info["module"]))
        found = inspect.unwrap(found)
        path = Path(inspect.getsourcefile(found) or "").relative_to(package)
        lines, first = inspect.getsourcelines(found)
    except (AttributeError, TypeError, ValueError, OSError):
        return None
    return f"{SOURCES}/src/regard/{path.as_posix()}#L{first}-L{first + len(lines) - 1}"


def finish(app: Any, error: Exception | None) -> None:
    """Make the front page the index, and refuse what a browser would fetch from elsewhere."""
    if error:
        return
    out = Path(app.outdir)
    write_explored(out)
    for path in out.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        if foreign := _FOREIGN.search(page):
            raise ValueError(f"{path} fetches from elsewhere: {foreign[0]}")
        for address in map(html.unescape, _OUTSIDE.findall(page)):
            if wrong := addresses.fault(address):
                raise ValueError(f"{path}: {address} {wrong}")
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
    """Document how to use a family, not how it is built."""
    return True if app.env.docname == "docs/api/models-families" and kind == "class" and name in BUILDING else None


def hide_constructor(app: Any, kind: str, _name: str, value: Any, _options: Any, *_: Any) -> tuple[str, str] | None:
    """Leave out the parameters with which `regard.load` makes a model."""
    is_model = kind == "class" and app.env.docname == "docs/api/models-families" and hasattr(value, "config_type")
    return ("", "") if is_model else None


def escape_bars(_app: Any, _kind: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Keep |x| of a docstring, which reStructuredText reads as a substitution, outside of code."""
    lines[:] = map(_escaped, lines)


def _escaped(line: str) -> str:
    return "``".join(part if n % 2 else part.replace("|", r"\|") for n, part in enumerate(line.split("``")))


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
