"""Python files outside the package, as modules."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def script(path):
    """Return a file outside the package, given relative to the repository, as a module."""
    spec = importlib.util.spec_from_file_location(f"checked_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
