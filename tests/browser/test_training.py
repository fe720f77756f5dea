"""A training run on the page: the slider, the curves and the map agree; playing; checkpoints that come; one file."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from acts import click, resize
from pages import check_access, expect, served, settled

import regard
from regard.explorer import write_page
from regard.explorer.training import TrainingExploration
from regard.training import TrainingRun, make_task, new_model
from sweeps import sweep_after

STEPS = (0, 3, 6, 9, 12)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "<b>run"
    task = make_task("induction", batch_size=4)
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    model = new_model({**config, "vocab_size": task.tokenizer.vocab_size}, task.tokenizer, seed=1)
    regard.train(
        model, task.batches(), steps=12, learning_rate=0.03, folder=folder, save_every=3, save_start=True,
        evaluation=task.held_out(1), evaluate_every=6,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def exploration(run_folder):
    return TrainingExploration(TrainingRun(run_folder), layer=1, head=1)


@pytest.fixture(scope="session")
def training_address(exploration):
    with served(exploration) as address:
        yield address


@pytest.fixture(scope="session")
def training_file(exploration, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "training.html"
    write_page(exploration, path)
    return path.as_uri()


def checkpoint(page):
    return page.locator(".rg-checkpoint")


def slide_to(page, index):
    page.get_by_label("Checkpoint", exact=True).evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", index
    )
    settled(page)


def marker_shares(page):
    """Return where the marker of each curve is, from 0 at the first step to 1 at the last."""
    return page.locator(".rg-curve").evaluate_all(
        """(curves) => curves.map((curve) => {
          const boxOf = (selector) => curve.querySelector(selector).getBBox();
          const axis = boxOf(".rg-axes .rg-zero");
          return (boxOf(".rg-marker").x - axis.x) / axis.width;
        })"""
    )


def told(page):
    """Return the weight of the last row and the column before it, as the page says it."""
    return page.locator(".rg-readout").inner_text()


@pytest.mark.parametrize("kind", ["served", "file"])
def test_the_slider_changes_the_map_and_the_markers(open_page, training_address, training_file, exploration, kind):
    length = len(exploration.manifest()["runs"][0]["tokens"])
    address = training_address if kind == "served" else training_file
    page = open_page(f"{address}#v=head&l=1&h=1&i={length - 1}&j={length - 2}")
    assert page.locator(".rg-curve").count() == 3
    expect(checkpoint(page)).to_contain_text("step 12 of 12 · loss")
    assert page.locator("b").count() == 0  # the name of the run is text
    maps = []
    for index in (0, 2, 4):
        slide_to(page, index)
        expect(checkpoint(page)).to_contain_text(f"step {STEPS[index]} of 12")
        np.testing.assert_allclose(marker_shares(page), STEPS[index] / 12, atol=0.01)
        weight = exploration.row(index, 1, 1, length - 1)[length - 2]
        assert float(told(page).rsplit(" ", 1)[1]) == pytest.approx(weight, rel=0.005)  # three digits
        maps.append(page.locator(".rg-map canvas").first.evaluate("(canvas) => canvas.toDataURL()"))
    assert len(set(maps)) == 3
    assert "held out" in checkpoint(page).inner_text()
    slide_to(page, 1)
    assert "held out" not in checkpoint(page).inner_text()  # it was not computed there


def test_the_address_names_the_checkpoint(open_page, training_address):
    page = open_page(f"{training_address}#v=head&l=1&h=1&step=6")
    expect(checkpoint(page)).to_contain_text("step 6 of 12")
    slide_to(page, 1)
    page.wait_for_function("location.hash.includes('step=3')")
    slide_to(page, 4)
    page.wait_for_function("!location.hash.includes('step')")  # the newest
    page.evaluate("location.hash = '#v=head&l=1&h=1&step=7'")
    expect(checkpoint(page)).to_contain_text("step 6 of 12")  # the last one before
    page.evaluate("location.hash = '#v=head&l=1&h=1&step=x'")
    expect(checkpoint(page)).to_contain_text("step 12 of 12")


@pytest.mark.parametrize("motion", sweep_after(1, ["no-preference", "reduce"]))
def test_playing_goes_from_the_first_to_the_last(open_page, training_file, motion):
    page = open_page(f"{training_file}#v=head&l=1&h=1", reduced_motion=motion)
    page.evaluate(
        """() => {
          window.steps = [];
          const output = document.querySelector(".rg-checkpoint");
          new MutationObserver(() => window.steps.push(output.textContent.split(" ")[1])).observe(output, {
            childList: true, characterData: true, subtree: true,
          });
        }"""
    )
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("steps") == [str(step) for step in STEPS]
    page.keyboard.press("k")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    slide_to(page, 2)  # who moves the slider ends it
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(checkpoint(page)).to_contain_text("step 6")


def test_keys_and_the_pointer_choose_checkpoints_and_heads(open_page, training_file):
    page = open_page(f"{training_file}#v=head&l=1&h=1")
    page.keyboard.press(",")
    expect(checkpoint(page)).to_contain_text("step 9")
    page.keyboard.press(".")
    expect(checkpoint(page)).to_contain_text("step 12")
    page.get_by_label("Checkpoint", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    expect(checkpoint(page)).to_contain_text("step 9")
    curve = page.locator(".rg-curve").first
    box = curve.bounding_box()
    page.mouse.click(box["x"] + 32, box["y"] + 12)
    expect(checkpoint(page)).to_contain_text("step 0")
    page.mouse.move(box["x"] + 40, box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 12, steps=4)
    page.mouse.up()
    expect(checkpoint(page)).to_contain_text("step 6")
    heads = page.locator(".rg-curve").nth(1).get_by_role("button")
    assert heads.count() == 4
    names = [heads.nth(n).get_attribute("aria-label") for n in range(4)]
    assert sorted(name.split(":")[0] for name in names) == [f"layer {n // 2}, head {n % 2}" for n in range(4)]
    page.locator(".rg-curve").nth(1).locator('[data-head="1.1"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".rg-head-panel h2")).to_have_text("Layer 0 · Head 0")
    line = page.locator(".rg-curve").nth(2).locator('[data-head="1.0"]')
    line.dispatch_event("pointerdown")
    expect(page.locator(".rg-head-panel h2")).to_have_text("Layer 1 · Head 0")
    expect(page.locator('[data-head="1.0"][aria-pressed="true"]')).to_have_count(2)
    page.keyboard.press("?")
    expect(page.get_by_text("Play the training, or pause")).to_be_visible()


def test_an_ablation_follows_the_checkpoint(open_page, training_address):
    page = open_page(f"{training_address}#v=head&l=0&h=0&step=6")
    page.get_by_role("button", name="Ablate this head").click()
    expect(page.get_by_role("heading", name="Without layer 0 head 0")).to_be_visible()
    settled(page)
    before = page.locator(".rg-changes").inner_text()
    slide_to(page, 4)
    expect(page.locator(".rg-changes")).not_to_have_text(before)
    expect(page.get_by_role("heading", name="Without layer 0 head 0")).to_be_visible()
    click(page.get_by_role("button", name="Restore all heads"))
    expect(checkpoint(page)).to_contain_text("step 12")


def test_every_view_is_of_the_checkpoint(open_page, training_file):
    page = open_page(f"{training_file}#v=head&l=1&h=1&i=5&j=4")
    for view in ("heads", "cell", "movement"):
        page.goto(f"{training_file}#v={view}&l=1&h=1&i=5&j=4")
        pictures = []
        for index in (0, 4):
            slide_to(page, index)
            pictures.append(page.locator(".rg-main").screenshot())
        assert pictures[0] != pictures[1], view


def test_a_checkpoint_that_appears_is_shown(open_page, serve, run_folder, tmp_path):
    folder = tmp_path / "run"

    def write(*steps):
        for step in steps:
            name = f"step-{step:06d}"
            shutil.copytree(run_folder / name, tmp_path / f".{name}")
            (tmp_path / f".{name}").rename(folder / name)
        rows = (run_folder / "losses.csv").read_text().splitlines(keepends=True)
        (folder / "losses.csv").write_text("".join(rows[: 1 + max(steps)]))

    folder.mkdir()
    write(0, 3)
    page = open_page(serve(TrainingExploration(TrainingRun(folder))))
    expect(checkpoint(page)).to_contain_text("step 3 of 12")
    expect(page.get_by_text("training continues")).to_be_visible()
    np.testing.assert_allclose(marker_shares(page), 0.25, atol=0.01)
    write(6)
    expect(checkpoint(page)).to_contain_text("step 6 of 12")
    slide_to(page, 1)
    write(9)
    expect(page.get_by_label("Checkpoint", exact=True)).to_have_attribute("max", "3")
    expect(checkpoint(page)).to_contain_text("step 3 of 12")  # as the reader chose
    page.get_by_role("button", name="Follow the newest").click()
    expect(checkpoint(page)).to_contain_text("step 9 of 12")
    write(12)
    expect(checkpoint(page)).to_contain_text("step 12 of 12")
    expect(page.get_by_text("training continues")).to_have_count(0)


def test_a_run_without_losses_or_repetition(open_page, run_folder, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "losses.csv").unlink()
    write_page(TrainingExploration(TrainingRun(folder), "abc"), tmp_path / "page.html")
    page = open_page((tmp_path / "page.html").as_uri())
    expect(page.get_by_text("no token of the text repeats")).to_be_visible()
    expect(checkpoint(page)).to_have_text("step 12 of 12")


def test_nothing_leaves_the_page(open_page, training_file):
    page = open_page(f"{training_file}#v=head&l=1&h=1&step=6")
    for width in (320, 390, 760, 1000, 1440):
        resize(page, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = SimpleNamespace(**page.locator(".rg-training").bounding_box())
        for part in page.locator(".rg-training :is(.rg-curve, input, output, figcaption)").all():
            box = part.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= found.width + 0.5


def test_axe_finds_nothing_serious(open_page, training_address):
    check_access(open_page(f"{training_address}#v=head&l=1&h=1&step=6"), 1440, 375)
