"""Print what the kernels of wheels are, as JSON: format, processor, exported names, libraries that they load.

Run by `.ci/release.py verify` in an environment with LIEF, which reads the formats of all systems.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import lief


def describe(kernel: bytes) -> dict[str, Any]:
    parsed: Any = lief.parse(list(kernel))
    if parsed is None:
        return {"format": "none", "machine": "none", "exports": [], "libraries": []}
    if isinstance(parsed, lief.MachO.FatBinary):
        parsed = parsed.at(0)
    header, libraries = parsed.header, parsed.libraries
    if isinstance(parsed, lief.ELF.Binary):
        machine = header.machine_type
    elif isinstance(parsed, lief.MachO.Binary):
        machine = header.cpu_type
        own = lief.MachO.LoadCommand.TYPE.ID_DYLIB  # the name of the kernel itself
        libraries = [each.name for each in libraries if each.command != own]
    else:
        machine = header.machine
    return {
        "format": parsed.format.name,
        "machine": machine.name,
        "exports": sorted(function.name for function in parsed.exported_functions),
        "libraries": sorted(map(str, libraries)),
    }


if __name__ == "__main__":
    described = {}
    for path in map(Path, sys.argv[1:]):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if Path(name).name.startswith("_kernel.") and Path(name).suffix in (".so", ".pyd"):
                    described[path.name] = describe(wheel.read(name))
    print(json.dumps(described))
