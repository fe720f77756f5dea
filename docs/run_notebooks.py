"""Run the notebooks in a kernel of Jupyter, each in an empty folder, as a reader does who has solved every exercise.

    python docs/run_notebooks.py                     all
    python docs/run_notebooks.py lesson exercises    some

In the cell of an answer stands the solution that is folded below it; a long training is as short as in `docs/make.py`.
Exits with 1 if a cell fails or a check is not content. Needs ``nbclient`` and ``ipykernel``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from typing import Any

from make import LONG
from make_notebooks import FOLDER, LESSONS

SECONDS = 600  # of a cell

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def solved(name: str) -> dict[str, Any]:
    """Return a notebook with its solutions as the answers, and its training shortened."""
    notebook: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    for cell, following in zip(notebook["cells"], [*notebook["cells"][1:], None], strict=True):
        tags = cell["metadata"].pop("tags", ())  # that a check may fail, too
        if "answer" in tags:
            cell["source"] = "".join(_PYTHON.findall(following["source"]))
        if cell["cell_type"] == "code" and (short := LONG.get(f"docs/{name}.md")):
            cell["source"] = cell["source"].replace(*short)
    return notebook


def problems(notebook: dict[str, Any]) -> list[str]:
    """Run a notebook, and return what is wrong: the cell that stopped it, or the hints of its checks."""
    import nbformat  # here, as what is above needs no Jupyter
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    run = nbformat.from_dict(notebook)
    with tempfile.TemporaryDirectory() as folder:
        try:
            NotebookClient(run, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
        except CellExecutionError as error:
            return [str(error)]
    outputs = (output for cell in run.cells for output in cell.get("outputs", ()))
    printed = (output.text for output in outputs if output.output_type == "stream")
    return [text.strip() for text in printed if text.startswith("Not yet")]


def main() -> int:
    found = False
    for name in sys.argv[1:] or LESSONS:
        wrong = problems(solved(name))
        print(f"{name}.ipynb", *(wrong or ["runs"]), sep=": ", flush=True)
        found |= bool(wrong)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
