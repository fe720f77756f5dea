"""A view shows its state and its data together, or that it waits: with every answer held back, in any order."""

from __future__ import annotations

import random
from difflib import ndiff
from urllib.parse import parse_qsl, urlencode

import pytest
from acts import go
from pages import SEQUENCE, explored, settled

from regard.explorer.story import parse_story
from sweeps import sweep_after

# The views of the page: what names the numbers, and the numbers.
VIEWS = {
    "map": ["h2[data-ref=title]", "[data-ref=modeDescription]", "[data-ref=provenance]", "[data-ref=map] .rg-stage"],
    "words": ["[data-ref=topHeading]", "[data-ref=top]", "[data-ref=textNote]", ".rg-text-panel .rg-words"],
    "heads": ["[data-ref=grid]", "[data-ref=metricDescription]", "[data-ref=headCount]"],
    "cell": ["[data-ref=cellTitle]", "[data-ref=titleA]", "[data-ref=steps]", "[data-ref=titleB]", "[data-ref=stepsB]",
             "[data-ref=cellSource]"],
    "why": ["[data-ref=whySum]", "[data-ref=whyPairs]"],
    "context": ["[data-ref=changedContext]"],
    "what if": ["[data-ref=whatIfTokens]", "[data-ref=whatIfOutputs]"],
    "next": ["[data-ref=nextHeading]", "[data-ref=nextList]", "[data-ref=lensTable]"],
    "mattered": ["[data-ref=attributionResult]"],
    "plane": ["[data-ref=plane]", "[data-ref=movementText]", "[data-ref=movementLegend]"],
    "model": ["[data-ref=modelHeading]", "[data-ref=stream]"],
    "lines": ["[data-ref=lines]", "[data-ref=linesNote]"],
    "paths": ["[data-ref=pathsSummary]", "[data-ref=pathsGraph]", "[data-ref=pathsTree]"],
    "patching": ["[data-ref=patchingSummary]", "[data-ref=patchingLegend]", "[data-ref=patchingGrid]"],
    "chosen path": ["[data-ref=patchHeads]"],
    "story": ["[data-ref=storyName]", "[data-ref=storyTitle]", "[data-ref=storyProse]"],
    "aligned": ["[data-ref=aligned]"],
    "changes": ["[data-ref=changes]"],
}  # fmt: skip

# Holds requests back until they are let go, and keeps what each view showed after each change.
WATCH = """
(views) => {
  const [ask, held, seen] = [window.fetch, [], new Map()];
  let isHolding = false;
  window.fetch = async (...request) => {
    if (isHolding && !request[0].endsWith("progress")) await new Promise((done) => held.push(done));
    return ask(...request);
  };
  window.hold = (on) => (isHolding = on);
  window.letGo = (n) => held.length && held.splice(n % held.length, 1)[0]();
  const attributes = ["aria-label", "aria-pressed", "aria-selected", "style", "d", "title", "data-side", "disabled"];
  const written = (node) =>
    [node, ...node.querySelectorAll(":not(canvas)")].map((one) => {
      const said = attributes.map((name) => one.getAttribute(name)).filter(Boolean);
      const text = [...one.childNodes].filter((child) => child instanceof Text).map((child) => child.data.trim());
      const chosen = one instanceof HTMLSelectElement ? [one.value] : [];
      return [...said, ...chosen, ...text].filter(Boolean).join(" ");
    }).filter(Boolean).join("\\n");
  const drawn = (node) =>
    [...node.querySelectorAll("canvas")].map((canvas) => [canvas.width, canvas.height, canvas.toDataURL()]);
  window.look = (withPixels) =>
    Object.fromEntries(Object.entries(views).flatMap(([name, selectors]) => {
      const nodes = selectors.map((selector) => document.querySelector(selector));
      if (!nodes[0]) return [];
      const isVisible = nodes.at(-1).checkVisibility();
      const { textContent: message } = document.querySelector("[data-ref=liveMessage]");
      const isCounting = name === "heads" && message.startsWith("Ablating"); // head by head, as it says
      const isStale = (node) => node.closest(".rg-stale") !== null || node.querySelector(".rg-stale") !== null;
      const waits = isCounting || nodes.some(isStale);
      const isTorn = waits && nodes.some((node) => node.checkVisibility() && node.textContent && !isStale(node));
      const pixels = withPixels && isVisible && !waits ? nodes.flatMap(drawn) : [];
      return [[name, { waits, isCounting, isTorn, isVisible, text: nodes.map(written).join("\\n"), pixels }]];
    }));
  const after = new MessageChannel(); // a task after that of the change
  after.port1.onmessage = () => {
    for (const [name, { text, isCounting, isVisible }] of Object.entries(look(false)))
      if (isVisible && !isCounting && name !== "chosen path") // which a person sets before its numbers come
        seen.set(name, (seen.get(name) ?? new Set()).add(text));
  };
  const change = { subtree: true, childList: true, attributes: true, characterData: true };
  new MutationObserver(() => after.port2.postMessage(0)).observe(document.body, change);
  window.frames = () => Object.fromEntries([...seen].map(([name, texts]) => [name, [...texts]]));
}
"""

KEYS = ["]", "[", "}", "{", "m", "t", "p", "w", "s", "l", "n", "v", "c", "a", "g", "ArrowDown", "ArrowUp", "ArrowLeft",
        "ArrowRight", "1", "2", "3", "4", "5", "6", "7", "8", "9"]  # fmt: skip
PLACES = [".rg-text-panel .rg-word", ".rg-head", ".rg-segment", ".rg-line-toggle", "[data-field=nextTokens]",
          "[data-ref=ablateButton]", "[data-ref=undoButton]", ".rg-likely-token", ".rg-stream-head",
          "[data-field=why]", "[data-field=whatIf]", "[data-ref=knobs] input[type=checkbox]",
          "[data-ref=pathsTree] button", "[data-field=patchOver] .rg-segment", ".rg-patching-cell",
          "[data-ref=story] button", ".rg-item"]  # fmt: skip
PRESS = """
([selector, n]) => {
  const nodes = [...document.querySelectorAll(selector)].filter((node) => !node.disabled && node.checkVisibility());
  if (nodes.length) nodes[n % nodes.length].click();
}
"""
CHOOSE = """
(n) => {
  const lists = [...document.querySelectorAll("main select")].filter((list) => list.checkVisibility());
  const list = lists[n % lists.length];
  const options = [...(list?.options ?? [])].filter((option) => !option.disabled);
  if (!options.length) return;
  list.value = options[Math.floor(n / lists.length) % options.length].value;
  list.dispatchEvent(new Event("change"));
}
"""
RUNNING = """
document.querySelector("[data-ref=ablationStatus]").textContent.startsWith("Running") ||
document.querySelector("[data-ref=liveRun]")?.disabled
"""


REFUSED = "400 (Bad Request)"  # the effect of ablations in a run that has one, a path that cannot be: the page says it

STORY = """# What follows

## Look

Press [a letter](#v=head&l=1&h=0&i=2&j=1), or [what is put into B](#v=patching&po=path&ps=0.0&pr=1.1).

- [x] f
- [ ] q

---

It is the [first head](#v=heads&l=1&h=0).

## Change

Set [a score](#v=cell&l=1&h=0&i=8&j=4&wi=1&ws=1.0.8_4.m).

## Compare

See [A − B](#v=head&l=1&h=0&i=8&j=3&s=diff).
"""


def act(page, draw, kind):
    """Do something that a person might do."""
    what = draw.random()
    if kind == "paths" and draw.random() < 0.5:  # choose the heads and tokens of Patching
        if "v=patching" not in page.url:
            page.keyboard.press("8")
        page.evaluate(CHOOSE, draw.randrange(1000))
    elif what < 0.55:
        page.keyboard.press(draw.choice(KEYS))
    elif what < 0.95:
        page.evaluate(PRESS, [draw.choice(PLACES), draw.randrange(1000)])
    else:
        page.evaluate(CHOOSE, draw.randrange(100))


def still(page):
    """Wait until the page has done what it can do while answers are held back; return what its views show."""
    page.evaluate("settled({ areHeld: true })")
    return page.evaluate("look(true)")


def shown_address(page, before):
    """Return the address of what is shown: while the model runs, with the text and the ablation of before."""
    address = dict(parse_qsl(page.url.partition("#")[2]))
    if page.evaluate(RUNNING):
        for name in ("x", "xr", "text", "model"):
            address.pop(name, None)
            address.update({name: before[name]} if name in before else {})
    return address


def difference(text, complete):
    """Return what tells a text from the most similar of others."""
    near = max(complete, key=lambda other: len(set(text.split("\n")) & set(other.split("\n"))), default="")
    return [line for line in ndiff(near.split("\n"), text.split("\n")) if line[0] in "+-"]


@pytest.mark.parametrize("number", sweep_after(1, range(2)))
@pytest.mark.parametrize("kind", ["two texts", "paths", "decoder"])
def test_each_view_agrees_with_its_caption_in_every_frame(
    open_page, address_of_two, sequence_address, serve, induction, request, kind, number
):
    options = request.config.option
    draw = random.Random(f"{kind} {number} {options.seed if options.sweep == 1 else ''}")  # the night draws others
    pair = explored(induction, SEQUENCE, "qzxfbdqzx", layer=1, head=0)
    pair.story = parse_story(STORY, "own-file")
    base, opening = {
        "two texts": (address_of_two, "v=head&l=2&h=3&i=8&j=2"),
        "paths": (serve(pair), "v=patching&po=path&l=1&h=0&i=8&j=4&story=own-file"),
        "decoder": (sequence_address, "v=head&l=1&h=0&i=8&j=4&nt=1&wi=1&ws=1.0.8_4.m"),
    }[kind]
    page = open_page(f"{base}#{opening}", reduced_motion="reduce", allow=REFUSED)
    page.evaluate(WATCH, VIEWS)
    page.evaluate("hold(true)")
    shown = shown_address(page, {})
    rests = [(urlencode(shown), still(page))]
    for _ in range(40):
        act(page, draw, kind)
        for n in range(1 + draw.randrange(4)):
            if n:
                page.evaluate("(n) => letGo(n)", draw.randrange(1000))
            views = still(page)
            shown = shown_address(page, shown)
            rests.append((urlencode(shown), views))
    page.evaluate("hold(false)")
    while page.evaluate("letGo(0)") != 0:
        pass
    settled(page)
    shown = shown_address(page, shown)
    rests.append((urlencode(shown), page.evaluate("look(true)")))
    assert not any(view["waits"] and view["isVisible"] for view in rests[-1][1].values())
    frames = page.evaluate("frames()")
    there = open_page(f"{base}#{opening}", reduced_motion="reduce", allow=REFUSED)
    there.evaluate(WATCH, VIEWS)
    expected = {}
    for address in {address for address, _ in rests}:
        go(there, f"{base}#{address}")
        expected[address] = there.evaluate("look(true)")
    for address, views in rests:
        for name, view in views.items():
            assert view["isCounting"] or not view["isTorn"], (name, address)  # a part waits beside one that does not
            if view["isVisible"] and not view["waits"]:
                reference = expected[address][name]
                assert view["text"] == reference["text"], (name, address, difference(view["text"], {reference["text"]}))
                for one, other in zip(view["pixels"], reference["pixels"], strict=True):
                    assert one == other or one[:2] != other[:2], (name, address)  # a window may be laid out anew
    for name, texts in frames.items():
        complete = {views[name]["text"] for views in (rests[0][1], *expected.values())}  # the first: nothing yet
        for text in set(texts) - complete:
            assert text in complete, (name, difference(text, complete))
