"""What a person does on a page; each waits until the page has done what that asks."""

from __future__ import annotations

from pages import settled


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    settled(page)


def click(locator, **options):
    locator.click(**options)
    settled(locator.page)


def choose(locator, option):
    locator.select_option(option)
    settled(locator.page)


def ablate(page):
    """Switch the shown head off, and wait for what changes."""
    page.get_by_role("button", name="Ablate this head").click()
    appear(page, ".rg-changes h3")


def go(page, address):
    page.goto(address)
    settled(page)


def reach(page, address):
    """Wait until the page has an address, and shows what it says."""
    page.wait_for_url(address)
    settled(page)


def appear(page, selector):
    """Wait until something is on the page, and the page is done."""
    page.wait_for_selector(selector)
    settled(page)


def resize(page, width, height=900):
    page.set_viewport_size({"width": width, "height": height})
    settled(page)
