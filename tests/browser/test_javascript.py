"""The page's modules: types, pure functions, and no requests to elsewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def run(*command):
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_hold():
    run("npx", "--no-install", "tsc", "-p", "tsconfig.json")


def test_pure_functions():
    run("node", "--test", "unit/unit.test.mjs")


def test_the_page_asks_for_nothing_from_elsewhere():
    static = HERE.parent.parent / "src" / "regard" / "web" / "static"
    for file in filter(Path.is_file, static.rglob("*")):
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text.replace("https?", ""), file.name
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert way not in text, f"{file.name}: {way}"
