"""Real notebooks, each on a server of its own in an empty home."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

TOKEN = "a-token-of-the-tests"


@contextlib.contextmanager
def jupyterlab(folder, cells):
    """Run JupyterLab, and yield its address and that of a notebook of these cells."""
    notebook = {
        "cells": [
            {"cell_type": "code", "id": f"c{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": cell}
            for n, cell in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / "one.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    options = [
        f"--ServerApp.root_dir={folder}",
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.expose_app_in_browser=True",
        "--port-retries=0",
        "--allow-root",
        "--no-browser",
    ]
    with _server(folder, ["jupyterlab", *options], "/api") as address:
        yield address, f"{address}/lab/tree/one.ipynb?token={TOKEN}"


@contextlib.contextmanager
def marimo(folder, cells, theme):
    """Run marimo, and yield its address and that of an app of these cells."""
    parts = ["import marimo", "app = marimo.App()"]
    for cell in cells:
        body = "\n".join(f"    {line}" for line in cell.splitlines())
        parts.append(f"with app.setup:\n{body}" if cell is cells[0] else f"@app.cell\ndef _():\n{body}\n    return")
    (folder / "one.py").write_text("\n\n".join(parts), encoding="utf-8")
    config = folder / "config" / "marimo"
    config.mkdir(parents=True)
    (config / "marimo.toml").write_text(f'[display]\ntheme = "{theme}"\n', encoding="utf-8")
    options = ["-y", "run", "one.py", "--headless", "--host=127.0.0.1", "--token", f"--token-password={TOKEN}"]
    with _server(folder, ["marimo", *options], "/health") as address:
        yield address, f"{address}/?access_token={TOKEN}"


@contextlib.contextmanager
def _server(folder, command, ready):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    env = {
        **os.environ,
        **{name: str(folder / name) for name in places},
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "MARIMO_SKIP_UPDATE_CHECK": "1",
    }
    address = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, f"--port={port}"], cwd=folder, env=env, stdout=log, stderr=log
        )
        try:
            _wait(server, f"{address}{ready}", folder / "server.log")
            yield address
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(server, address, log):
    while server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=60).close()
        except urllib.error.HTTPError:
            return  # it answers, if only that it does not know us
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{server.args[2]} did not begin:\n{log.read_text()}")
