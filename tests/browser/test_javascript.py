"""The page's modules: types, pure functions, and no requests to elsewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

from regard.explorer.bundle import bundle_module

HERE = Path(__file__).parent


def run(*command):
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_types_hold():
    run("npx", "--no-install", "tsc", "-p", "tsconfig.json")


def test_pure_functions():
    run("node", "--test", "unit/unit.test.mjs")


def test_the_script_of_a_page_has_the_texts_of_its_modules(tmp_path):
    bundle = tmp_path / "bundle.js"
    bundle.write_text("".join(map(bundle_module, ("app/main.js", "app/widget.js", "enter.js"))), "utf-8")
    frontend = HERE.parent.parent / "src" / "regard" / "explorer" / "frontend"
    assert run("node", "unit/texts.mjs", str(bundle), *map(str, sorted(frontend.rglob("*.js")))) == ""


def test_the_page_asks_for_nothing_from_elsewhere():
    frontend = HERE.parent.parent / "src" / "regard" / "explorer" / "frontend"
    files = list(filter(Path.is_file, frontend.rglob("*")))
    assert len(files) > 50
    for file in files:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert way not in text, f"{file.name}: {way}"
