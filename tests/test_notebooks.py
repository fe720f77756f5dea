"""The notebooks are those of the pages, and their code is what the pages run."""

import json
import re

import pytest

from scripts import ROOT, script

notebooks = script("docs/make_notebooks.py")


def test_the_notebooks_are_current():
    assert list(notebooks.stale()) == [], "run python docs/make_notebooks.py --write"


@pytest.mark.parametrize("name", notebooks.LESSONS)
def test_a_notebook_has_the_code_of_its_page_in_order(name):
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    unfolded = re.sub(r"^<details>\n.*?^</details>\n", "", page, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```python\n(.*?)^```$", unfolded, re.MULTILINE | re.DOTALL)
    cells = json.loads(notebooks.notebook(page))["cells"]
    own = [cell["metadata"].get("tags", []) in ([], ["raises-exception"]) for cell in cells]
    code = [
        "".join(cell["source"])
        for cell, is_own in zip(cells, own, strict=True)
        if cell["cell_type"] == "code" and is_own
    ]
    assert code == [notebooks.INSTALL.strip("\n"), *(block.strip("\n") for block in blocks)]
