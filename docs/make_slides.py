"""Make slides of the lessons: HTML files, and PDF files where Chromium is there.

    python docs/make_slides.py [--pdf] FOLDER

A section that asks is a slide: its question, then, at a press, the answer. Its last figure before the question stands
beside that, and the first one after it comes with the answer: a picture, else a formula, else an output or an example.
On paper both are there. Needs ``latex2mathml``; Chromium is found on the path, or named by ``CHROMIUM``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from make_notebooks import ROOT
from offline_html import document, to_html

LESSONS = ("lesson", "learning", "gpt", "writers")
MAX_LINES = 18  # of the outputs on a slide
WIDTH = 28  # of the figures, times the size of the text
MAX_COLUMNS = 80  # of an output, whose longer lines are broken
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")

_SECTION = re.compile(r"^## ", re.MULTILINE)
_QUESTION = re.compile(
    r"^\*\*Predict\.\*\* (?P<question>[^<]*\n)<details>\n<summary>[^<]*</summary>\n(?P<answer>.*?)^</details>\n",
    re.MULTILINE | re.DOTALL,
)
_CODE = re.compile(r"^```python\n.*?^```\n", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(
    r"^!\[[^\]]*\]\([^)]+\)\n|(?:^> [^\n]*\n)+|^```(?P<kind>math|text)\n(?P<output>.*?)^```\n", re.MULTILINE | re.DOTALL
)

_STYLE = """\
@page { size: 338.7mm 190.5mm; margin: 0; }
html { scroll-snap-type: y mandatory; }
body { font-size: calc(min(1vw, 1.7778vh) * 1.9); line-height: 1.28; }
section { width: calc(min(100vw, 177.78vh)); height: calc(min(100vh, 56.25vw)); margin: 0 auto;
  padding: 1.8em 2em 1.5em; position: relative; overflow: hidden; break-after: page; scroll-snap-align: start; }
section:last-of-type { break-after: auto; }
h1 { font-size: 2.6em; margin: 3.2em 0 0.4em; line-height: 1.15; }
math { font-size: 0.95em; }
h2 { font-size: 1.6em; margin: 0 0 0.5em; line-height: 1.15; }
.columns { display: grid; grid-template-columns: 1fr 28em; gap: 1.5em; align-items: start; }
.columns p:first-child, details p:first-of-type { margin-top: 0; }
.question { font-weight: 600; }
details { margin-top: 0.7em; }
summary { font-weight: 600; margin-bottom: 0.5em; }
.columns > div { min-width: 0; }
pre { font-size: inherit; white-space: pre-wrap; }
details pre { font-size: 0.7em; }
.later { visibility: hidden; }
.answered .later { visibility: visible; }
img { display: block; max-width: 100%; max-height: 20em; margin: 0 auto; }
.columns > div:has(> * + .later) img { max-height: 12em; }
pre, blockquote { margin-top: 0; }
footer { position: absolute; right: 2em; bottom: 0.8em; color: var(--muted); font-size: 0.7em; }
@media print {
  body { font-size: 6.43mm; }
  section { width: 338.7mm; height: 190.4mm; }
  .later { visibility: visible; }
  .keys { display: none; }
}
"""
_SCRIPT = """\
<script>
const slides = [...document.querySelectorAll("section")];
let at = 0;
const answer = (slide, open) => {
  const details = slide.querySelector("details");
  if (details) details.open = open;
  slide.classList.toggle("answered", open);
};
const go = (to) => slides[at = Math.max(0, Math.min(to, slides.length - 1))].scrollIntoView();
for (const details of document.querySelectorAll("details")) {
  details.addEventListener("toggle", () => answer(details.closest("section"), details.open));
}
addEventListener("scrollend", () => {
  at = slides.findIndex((slide) => slide.getBoundingClientRect().bottom > innerHeight / 2);
});
addEventListener("keydown", (event) => {
  const closed = slides[at].querySelector("details:not([open])");
  if (event.target.localName === "summary" && [" ", "Enter"].includes(event.key)) return;
  if (["ArrowRight", "ArrowDown", "PageDown", " "].includes(event.key)) closed ? answer(slides[at], true) : go(at + 1);
  else if (["ArrowLeft", "ArrowUp", "PageUp"].includes(event.key)) go(at - 1);
  else return;
  event.preventDefault();
});
addEventListener("beforeprint", () => slides.forEach((slide) => answer(slide, true)));
</script>"""


def slides(name: str) -> str:
    """Return the slides of a lesson as a file."""
    title, *sections = _SECTION.split((ROOT / f"docs/{name}.md").read_text(encoding="utf-8"))
    title = title.partition("\n")[0].removeprefix("# ")
    made = [slide for section in sections if (slide := _slide(section))]
    foot = "<footer>{} · {} / {}</footer>"
    first = f'<h1>{title}</h1>\n<p class="keys">→ shows the answer, then the next question; ← goes back.</p>'
    body = (
        f"<section>\n{slide}\n{foot.format(title, number, len(made) + 1)}\n</section>"
        for number, slide in enumerate([first, *made], 1)
    )
    return document(f"{title}: slides", "\n".join(body) + "\n" + _SCRIPT, _STYLE)


def _slide(section: str) -> str | None:
    """Return the slide of a section; None if it asks nothing."""
    found = _QUESTION.search(section)
    if found is None:
        return None
    heading = section.partition("\n")[0]
    before = sorted(_FIGURE.finditer(section[: found.start()]), key=_rank, reverse=True)[-1:]
    after = sorted(_FIGURE.finditer(section[found.end() :]), key=_rank)[:1]
    lines = sum((figure["output"] or "").count("\n") for figure in before + after)
    if lines > MAX_LINES or [_rank(figure) for figure in before + after] == [0, 0]:
        before = []  # there is no room for both
    later = f'<div class="later">{_figure(after[0])}</div>' if after else ""
    return (
        f'{to_html(f"## {heading}")}<div class="columns">\n<div>\n'
        f'<div class="question">{to_html(found["question"])}</div>\n'
        f"<details><summary>Answer</summary>\n{to_html(_CODE.sub('', found['answer']))}</details>\n</div>\n"
        f"<div>{''.join(map(_figure, before))}{later}</div>\n</div>"
    )


def _rank(found: re.Match[str]) -> int:
    if found[0].startswith("!"):
        return 3 if re.search(r"\(images/(explorer|diagram)", found[0]) else 0  # too much to be read on a slide
    return 1 if found["kind"] == "math" else 2


def _figure(found: re.Match[str]) -> str:
    """Return a figure as HTML; the longest line of an output decides on its size."""
    made = to_html(found[0])
    if found["kind"] != "text":
        return made
    longest = min(MAX_COLUMNS, max(map(len, found["output"].splitlines())))
    return f'<div style="font-size: {min(0.85, WIDTH / (0.61 * longest + 2)):.2f}em">{made}</div>'


def print_pdf(page: Path) -> Path:
    """Write a file as PDF beside it, and return its path."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("PDF files need Chromium: install it, set CHROMIUM, or print the pages in a browser")
    pdf = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory() as profile:
        options = ("--headless", "--no-sandbox", "--no-pdf-header-footer", f"--user-data-dir={profile}")
        subprocess.run([browser, *options, f"--print-to-pdf={pdf}", page.as_uri()], check=True, capture_output=True)
    return pdf


def write(folder: Path) -> list[Path]:
    """Write the slides of all lessons, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {folder.resolve() / f"{name}.html": slides(name) for name in LESSONS}
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return list(made)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make slides of the lessons.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--pdf", action="store_true", help="print them to PDF files too")
    options = parser.parse_args()
    for path in write(options.folder):
        print(print_pdf(path) if options.pdf else path)


if __name__ == "__main__":
    main()
