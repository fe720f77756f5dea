"""Modules become one script with the same behaviour; an unsupported module is an error."""

import re
import shutil
import subprocess

import pytest

from regard import RegardError
from regard.explorer import bundle
from regard.explorer.bundle import bundle_module, frontend_file, frontend_files

MODULES = {
    "app/main.js": """
import { twice as double, Thing } from "../data/numbers.js";
import * as words from '../data/words.js';
/**
 * @param {number} x "*" and // of a comment
 */
const own = /** @type {number} */ (
  1 // of which
);
  /** @type {string} */
  // https://example.org/
const address = "https://example.org"; /* that stays */
export async function later() { return own; }
export const result = [double(4), new Thing().value, words.hello, own, address.length].join(" ");
console.log(result);
""",
    "data/numbers.js": """
import { hello } from "./words.js";
const own = 2;
export function twice(x) { return own * x; }
class Thing { value = hello.length; }
export { Thing };
""",
    "data/words.js": 'export const hello = "hello"; // export of a greeting\n',
    "circle.js": 'import { a } from "./data/around.js";\n',
    "data/around.js": 'import { b } from "../circle.js";\n',
    "default.js": "export default 3;\n",
    "changing.js": "export let count = 0;\n",
    "foreign.js": 'import { x } from "https://example.org/x.js";\n',
}


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.setattr(bundle, "frontend_file", MODULES.__getitem__)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.usefixtures("modules")
def test_the_script_does_what_the_modules_do():
    done = subprocess.run(["node", "-e", bundle_module("app/main.js")], capture_output=True, text=True, check=True)
    assert done.stdout == "8 5 hello 1 19\n"


@pytest.mark.usefixtures("modules")
def test_each_module_is_there_once_and_before_what_imports_it():
    code = bundle_module("app/main.js")
    places = [code.index(f"const ${name}=") for name in ("data_words", "data_numbers", "app_main", "entry")]
    assert places == sorted(places)
    assert code.count("const $data_words=") == 1
    assert "import" not in code
    assert "@param" not in code
    assert "of which" not in code
    assert "https://example.org" in code


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("circle.js", "circular import: circle.js → data/around.js → circle.js"),
        ("default.js", "export default 3"),
        ("changing.js", "export let count"),
        ("foreign.js", "https://example.org"),
    ],
)
def test_what_cannot_be_a_part_of_one_script_is_said(name, says):
    with pytest.raises(RegardError, match=says):
        bundle_module(name)


def _entry():
    return re.search(r'<script type="module" src="static/([\w./-]+)">', frontend_file("index.html"))[1]


def test_declarations_of_types_are_no_part_of_the_page():
    assert frontend_file("types.d.ts")
    assert not any(name.endswith(".ts") for name in frontend_files())


@pytest.mark.parametrize("entry", [_entry(), "app/widget.js"])
def test_the_page_s_own_modules_are_of_that_kind(entry):
    assert entry in frontend_files()
    assert "</script" not in bundle_module(entry).lower()
