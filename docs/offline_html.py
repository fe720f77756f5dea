"""Pages of the documentation as HTML files that need nothing else: no network, no other file, no script.

Pictures are inside the file, formulas are MathML, code is coloured. Packages that are needed besides regard's own:
``latex2mathml``.
"""

from __future__ import annotations

import base64
import html
import posixpath
import re
from collections.abc import Collection

import latex2mathml.converter
from make_notebooks import ELSEWHERE, REPOSITORY, ROOT
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name

_COLOURS = HtmlFormatter(nowrap=True, style="friendly")
STYLE = f"""\
:root {{ color-scheme: light; --muted: #5a6472; --line: #d4d9e0; --accent: #2a5db0; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; font: 17px/1.55 system-ui, sans-serif; color: #1c2733; background: #fff; }}
a {{ color: var(--accent); }}
pre, code {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
pre {{ font-size: 13px; line-height: 1.4; overflow-x: auto; padding: 0.6em 0.9em; background: #f5f7f9; }}
pre.output {{ background: none; border-left: 3px solid var(--line); }}
code {{ font-size: 0.88em; }}
pre code {{ font-size: inherit; }}
img {{ max-width: 100%; }}
math[display="block"] {{ margin: 1em 0; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.25em 0.7em; border-bottom: 1px solid var(--line); text-align: left; }}
blockquote {{ margin-left: 0; padding-left: 1em; border-left: 3px solid var(--line); }}
summary {{ color: var(--accent); cursor: pointer; }}
{HtmlFormatter(style="friendly").get_style_defs("pre")}
"""
PAGE = """\
main { max-width: 54rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
details { margin: 1rem 0; padding-left: 1rem; border-left: 3px solid var(--line); }
@media print { pre, img, details, table { break-inside: avoid; } body { font-size: 11pt; }
  td { height: 2.6em; min-width: 5.5em; } }
"""
_MATH = re.compile(r"\$(?P<formula>[^$`\s](?:[^$`\n]*[^$`\s])?)\$(?!\d)")
_ADDRESS = re.compile(r"^(?:[a-z]+:|#)")


def page(name: str, others: Collection[str] = ()) -> str:
    """Return a page of the documentation; of the pages that it leads to, `others` are files in the same folder."""
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    return document(title, f"<main>\n{to_html(ELSEWHERE.sub('', text), others)}</main>", PAGE)


def document(title: str, body: str, style: str = "") -> str:
    """Return a whole file."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def to_html(text: str, others: Collection[str] = ()) -> str:
    """Return Markdown of a page in ``docs`` as HTML; links are as `page` has them."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.inline.ruler.before("escape", "math", _read_math)
    parser.add_render_rule("math", _write_math)
    parser.add_render_rule("fence", _write_fence)
    tokens = parser.parse(text)
    names: dict[str, int] = {}
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[at + 1].content, names))
        for part in token.children or ():
            if part.type == "link_open":
                part.attrSet("href", _target(str(part.attrs["href"]), others))
            elif part.type == "image":
                part.attrSet("src", _picture(str(part.attrs["src"])))
    written: str = parser.renderer.render(tokens, parser.options, {})
    return written


def _anchor(heading: str, names: dict[str, int]) -> str:
    """Return the name of a heading, as GitHub makes it."""
    name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    names[name] = names.get(name, -1) + 1
    return f"{name}-{names[name]}" if names[name] else name


def _target(link: str, others: Collection[str]) -> str:
    path, sharp, place = link.partition("#")
    if _ADDRESS.match(link):
        return link
    if path.removesuffix(".md") in others:
        return f"{path.removesuffix('.md')}.html{sharp}{place}"
    return f"{REPOSITORY}/blob/main/{posixpath.normpath(posixpath.join('docs', path))}{sharp}{place}"


def _picture(path: str) -> str:
    content = base64.b64encode((ROOT / "docs" / path).read_bytes()).decode()
    return f"data:image/{path.rpartition('.')[2]};base64,{content}"


def _read_math(state: StateInline, silent: bool) -> bool:
    found = _MATH.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("math", "", 0).content = found["formula"]
    state.pos = found.end()
    return True


def _write_math(_: RendererHTML, tokens: list[Token], at: int, *_others: object) -> str:
    return _formula(tokens[at].content, "inline")


def _formula(latex: str, display: str) -> str:
    """Return a formula as MathML; roots are drawn, as browsers draw none without a font for mathematics."""
    root = r'<mrow><mo>√</mo><mrow style="border-top: 1px solid">\1</mrow></mrow>'
    return re.sub(r"<msqrt>(.*?)</msqrt>", root, latex2mathml.converter.convert(latex.strip(), display=display))


def _write_fence(_: RendererHTML, tokens: list[Token], at: int, *_others: object) -> str:
    language, code = tokens[at].info.partition(" ")[0], tokens[at].content
    if language == "math":
        return _formula(code, "block") + "\n"
    if language in ("", "text"):
        return f'<pre class="output">{html.escape(code)}</pre>\n'
    return f"<pre>{highlight(code, get_lexer_by_name(language), _COLOURS)}</pre>\n"
