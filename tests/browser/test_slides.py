"""The slides of a lesson: what keys show, and that nothing is cut off."""

from __future__ import annotations

from scripts import script

slides = script("docs/make_slides.py")
AT = """() => {
  const slides = [...document.querySelectorAll("section")];
  const at = slides.findIndex((slide) => Math.abs(slide.getBoundingClientRect().top) < 2);
  if (at < 1) return `${at}`;
  const [answer, later] = ["details", ".later"].map((part) => slides[at].querySelector(part));
  return `${at} ${answer.open} ${getComputedStyle(later).visibility}`;
}"""
CUT = """() => [...document.querySelectorAll("section")].flatMap((slide) => {
  const edge = slide.getBoundingClientRect();
  const parts = [...slide.querySelectorAll("p, pre, img, math, footer")].map((part) => part.getBoundingClientRect());
  const isCut = parts.some((part) => part.bottom > edge.bottom || part.right > edge.right);
  return isCut ? [slide.querySelector("h1, h2").textContent] : [];
})"""


def test_a_key_shows_the_answer_and_then_the_next_question(tmp_path, open_page):
    path = tmp_path / "slides.html"
    path.write_text(slides.slides("writers"), encoding="utf-8")
    page = open_page(path.as_uri(), selector="section")
    for key, state in (
        ("ArrowRight", "1 false hidden"),
        ("ArrowRight", "1 true visible"),
        ("Space", "2 false hidden"),
        ("ArrowLeft", "1 true visible"),
    ):
        page.keyboard.press(key)
        page.wait_for_function(f"({AT})() === '{state}'")
    page.click("section:nth-of-type(2) summary")
    page.wait_for_function(f"({AT})() === '1 false hidden'")


def test_nothing_of_a_slide_is_cut_off(tmp_path, open_page):
    path = tmp_path / "slides.html"
    for name in slides.LESSONS:
        path.write_text(slides.slides(name), encoding="utf-8")
        page = open_page(path.as_uri(), selector="section")
        page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        assert page.evaluate(CUT) == []
