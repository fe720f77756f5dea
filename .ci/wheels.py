"""Build the wheels of every system on this one: Clang as Zig carries it, with headers and libraries of each of them.

    python .ci/wheels.py dist                     # with each of the interpreters below that is on the path
    python .ci/wheels.py dist --only macosx_11_0_arm64    # some systems

CMake compiles the kernel for each system and each interpreter, whose headers it needs; all else is the wheel of pure
Python, which is made too, as the source distribution is, and serves every other system. `nox -s wheels` brings the
tools, and checks what was built.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# One of CPython 3.12 or later makes the wheel of the stable ABI, 3.11 and free-threaded ones each their own.
PYTHONS = ("python3.11", "python3.13", "python3.14t", "python3.15t")


class System(NamedTuple):
    """What is compiled for."""

    target: str  # as Zig names it, with the version of the C library or of macOS
    name: str  # as CMake does
    processor: str


SYSTEMS = {
    "manylinux_2_28_x86_64": System("x86_64-linux-gnu.2.28", "Linux", "x86_64"),
    "manylinux_2_28_aarch64": System("aarch64-linux-gnu.2.28", "Linux", "aarch64"),
    "musllinux_1_2_x86_64": System("x86_64-linux-musl", "Linux", "x86_64"),
    "musllinux_1_2_aarch64": System("aarch64-linux-musl", "Linux", "aarch64"),
    "macosx_11_0_x86_64": System("x86_64-macos.11.0", "Darwin", "x86_64"),
    "macosx_11_0_arm64": System("aarch64-macos.11.0", "Darwin", "arm64"),
    "win_amd64": System("x86_64-windows-gnu", "Windows", "AMD64"),
}
KERNEL_SUFFIXES = (".so", ".pyd")
# What the headers of Python for Linux lack on Windows, where a kernel takes Python's functions from a library.
WINDOWS_HEADER = """
#define MS_WINDOWS 1
#define MS_WIN32 1
#define MS_WIN64 1
#define HAVE_DECLSPEC_DLL 1
#define Py_ENABLE_SHARED 1
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_WCHAR_T 2
"""


class Python(NamedTuple):
    """An interpreter."""

    path: str
    headers: Path
    version: str  # 11, 13, 14t

    @property
    def is_stable(self) -> bool:
        """Whether a kernel needs the stable ABI alone, which every later version has too."""
        return self.version != "11" and not self.version.endswith("t")

    @property
    def tag(self) -> str:
        """Of its wheels: cp311-cp311, cp312-abi3, cp314-cp314t."""
        return "cp312-abi3" if self.is_stable else f"cp3{self.version.rstrip('t')}-cp3{self.version}"

    def makes(self, system: System) -> bool:
        """Tell whether there is a wheel for a system: for Windows of the stable ABI, whose names are published."""
        return system.name != "Windows" or self.is_stable

    @classmethod
    def read(cls, name: str) -> Python | None:
        """Return the facts of an interpreter that a build needs; None if no interpreter of this name runs."""
        code = (
            "import sys, sysconfig; print(sys.executable); print(sysconfig.get_path('include')); "
            "print(sys.version_info[1], 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else '', sep='')"
        )
        try:
            done = subprocess.run([name, "-c", code], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        path, headers, version = done.stdout.split("\n")[:3]
        return cls(path, Path(headers), version)


class Builder:
    """Makes wheels in a folder, in which the objects of each system stay."""

    def __init__(self, folder: Path) -> None:
        import nanobind
        import ziglang

        self.folder = folder
        self.zig = str(Path(ziglang.__file__).with_name("zig.exe" if os.name == "nt" else "zig"))
        self.nanobind = nanobind.cmake_dir()

    def pure_wheel(self) -> Path:
        """Make the source distribution and, of it, the wheel of pure Python, and return that."""
        options = ("--config-setting=wheel.cmake=false", "--config-setting=wheel.py-api=py3")
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", self.folder, *options, ROOT)
        (wheel,) = self.folder.glob("*-py3-none-any.whl")
        with zipfile.ZipFile(wheel) as archive:
            if kernels := [name for name in archive.namelist() if Path(name).suffix in KERNEL_SUFFIXES]:
                raise SystemExit(f"src holds {', '.join(kernels)}, which every wheel would: remove it")
        return wheel

    def kernel(self, tag: str, python: Python) -> Path:
        """Compile the kernel; objects without bindings are those of the interpreter before."""
        system, folder = SYSTEMS[tag], self.folder / tag
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_COMPILER": f"{self.zig};c++;-target;{system.target}",
            "CMAKE_SYSTEM_NAME": system.name,
            "CMAKE_SYSTEM_PROCESSOR": system.processor,
            # That of this system writes archives that the linker for macOS does not read.
            "CMAKE_CXX_ARCHIVE_CREATE": f"{self.zig} ar qc <TARGET> <LINK_FLAGS> <OBJECTS>",
            "CMAKE_CXX_ARCHIVE_FINISH": f"{self.zig} ranlib <TARGET>",
            "nanobind_ROOT": self.nanobind,
            # What nanobind would ask the interpreter, which is of this system.
            "SKBUILD_SOABI": f"cpython-{python.tag.rpartition('cp')[2].removesuffix('-abi3')}-any",
            "SKBUILD_SOSABI": "" if system.name == "Windows" else "abi3",
        }
        settings |= {"Python_EXECUTABLE": python.path, "Python_INCLUDE_DIR": str(python.headers)}
        if system.name == "Windows":
            settings |= self._windows_python(folder / "python", python)
        options = [f"-D{key}={value}" for key, value in settings.items()]
        _run("cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-U", "*Python*", "-U", "NB_*", *options)
        _run("cmake", "--build", folder)
        (kernel,) = (path for path in folder.glob("_kernel*") if path.suffix in KERNEL_SUFFIXES)
        return kernel

    def _windows_python(self, folder: Path, python: Python) -> dict[str, str]:
        """Write Python's headers as they are on Windows, and what a linker reads in place of its ``python3.dll``."""
        import abi3info
        from abi3info.models import PyVersion

        headers, names = folder / "include", folder / "python3.def"
        shutil.copytree(python.headers, headers, dirs_exist_ok=True)
        (headers / "pyconfig.h").write_text(WINDOWS_HEADER, encoding="utf-8")
        exported = [
            symbol.name + kind
            for table, kind in ((abi3info.FUNCTIONS, ""), (abi3info.DATAS, " DATA"))
            for symbol, about in table.items()
            if about.added <= PyVersion(3, 12) and (about.ifdef is None or about.ifdef.windows is True)
        ]
        names.write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *exported, ""]), encoding="utf-8")
        library = folder / f"python3{python.version}.lib"  # CMake wants the version in its name
        _run(self.zig, "dlltool", "-m", "i386:x86-64", "-d", names, "-l", library)
        return {
            "Python_INCLUDE_DIR": str(headers),
            "Python_LIBRARY": str(library),
            "Python_SABI_LIBRARY": str(library),
        }

    def wheel(self, pure: Path, tag: str, python: Python) -> Path:
        """Return the wheel of pure Python with the kernel for a system."""
        kernel = self.kernel(tag, python)
        abi3 = ".abi3" if python.is_stable and kernel.suffix == ".so" else ""
        name = f"regard/functional/native/_kernel{abi3}{kernel.suffix}"
        wheel = pure.with_name(pure.name.replace("py3-none-any", f"{python.tag}-{tag}"))
        with zipfile.ZipFile(pure) as source:
            files = {entry: source.read(entry) for entry in source.namelist()}
        files[name] = kernel.read_bytes()
        kernel.unlink()  # of the next interpreter it may have another name
        (about,) = (entry for entry in files if entry.endswith(".dist-info/WHEEL"))
        text = files[about].decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        files[about] = re.sub(r"^Tag: .*$", f"Tag: {python.tag}-{tag}", text, flags=re.MULTILINE).encode()
        write_wheel(wheel, files)
        return wheel


def write_wheel(path: Path, files: dict[str, bytes]) -> None:
    """Write a wheel with these files, and their list."""
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    lines = [f"{record},,"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            if name == record:
                continue
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}")
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
        archive.writestr(record, "\n".join([*lines, ""]))


def _run(*command: object) -> None:
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL)


def main() -> None:
    """Build the systems and interpreters of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", action="append", help="an interpreter, in place of the default ones")
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="a system, in place of all")
    arguments = parser.parse_args()
    names = arguments.python or PYTHONS
    pythons = {name: Python.read(name) for name in names}
    if missing := [name for name, python in pythons.items() if python is None]:
        message = f"no wheels of {', '.join(missing)}, which is not there or does not run"
        if os.environ.get("CI"):
            raise SystemExit(message)
        print(message)
    folder = arguments.folder.resolve()
    builder = Builder(folder)
    pure = builder.pure_wheel()
    for tag in arguments.only or SYSTEMS:
        for python in pythons.values():
            if python and python.makes(SYSTEMS[tag]):
                print(builder.wheel(pure, tag, python))


if __name__ == "__main__":
    main()
