"""Record the explorer in use: a text is run, a word chosen, all heads, the calculation, representations by layer.

    python docs/record_explorer.py

writes ``docs/images/explorer.gif``. Needs what `docs/draw_explorer.py` needs, and Pillow.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

from draw_explorer import TEXT, launched

OUT = Path(__file__).resolve().parent / "images" / "explorer.gif"
SIZE = {"width": 1440, "height": 900}
SHOWN = (960, 600)  # pixels
FRAME = 120  # milliseconds
COLORS = 128
OTHER = "wide"
FILM = 36  # frames from the first stage to the last
MOVE = """
async (slider, share) => {
  slider.value = share * slider.max;
  slider.dispatchEvent(new Event("input"));
  for (let n = 0; n < 2; n++) await new Promise(requestAnimationFrame);
}
"""


class Recorder:
    """Takes pictures of a page; equal ones after each other become one that stays longer."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.frames: list[Any] = []
        self.durations: list[int] = []

    def hold(self, milliseconds: int = FRAME) -> None:
        """Add what is seen now, for some time."""
        from PIL import Image

        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS)
        if self.frames and picture.tobytes() == self.frames[-1].tobytes():
            self.durations[-1] += milliseconds
            return
        self.frames.append(picture)
        self.durations.append(milliseconds)

    def settle(self, milliseconds: int) -> None:
        """Wait until what was asked has come, and stay on it."""
        self.page.wait_for_selector(":root:not(:has(.regard[aria-busy]))", state="attached")
        self.page.wait_for_timeout(700)
        self.hold(milliseconds)

    def save(self, path: Path) -> None:
        """Write an animated GIF that begins anew at its end."""
        from PIL import Image

        few = self.frames[:: max(1, len(self.frames) // 12)]
        all_colors = Image.new("RGB", (SHOWN[0], SHOWN[1] * len(few)))
        for row, frame in enumerate(few):
            all_colors.paste(frame, (0, SHOWN[1] * row))
        # One for all, so that colours stay as they are from frame to frame; rare ones too, as the orange of a choice.
        palette = all_colors.quantize(COLORS, Image.Quantize.MAXCOVERAGE)
        frames = [frame.quantize(COLORS, palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=self.durations, loop=0, optimize=True)


def record(page: Any) -> Recorder:
    """Go through the views and return the recording."""
    recorder = Recorder(page)
    recorder.settle(1800)
    box = page.get_by_role("textbox", name="Text", exact=True)
    box.press("End")
    for _ in TEXT.split()[-1]:
        box.press("Backspace")
        recorder.hold(80)
    for letter in OTHER:
        box.press_sequentially(letter)
        recorder.hold(140)
    box.press("Enter")
    recorder.settle(1600)
    page.locator("main .rg-word").get_by_text("it", exact=True).first.click()
    recorder.settle(1800)
    for view in ("All heads", "One head", "Calculation", "Model", "Representations by layer"):
        if view == "Calculation":
            for key in ("ArrowLeft", "ArrowRight"):  # of the chosen row: the second cell, of "animal"
                page.keyboard.press(key)
        page.get_by_role("button", name=view, exact=True).first.click()
        recorder.settle(2000)
    page.wait_for_selector(".rg-plane[data-drawn]")
    for frame in range(FILM + 1):  # not played, since pictures take longer on a busy machine
        page.locator("[data-ref=stage]").evaluate(MOVE, frame / FILM)
        recorder.hold()
    recorder.hold(1500)
    return recorder


def main() -> None:
    command = [sys.executable, "-m", "regard", "explore", TEXT, "--no-browser", "--port", "0"]
    with launched() as browser, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip() if server.stdout else ""
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto(f"{address}#v=head&l=3&h=1&special=0&arcs=1")
            page.wait_for_selector(".rg-map[data-drawn]", state="attached")
            record(page).save(OUT)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
