"""Processes that fetch a tiny model, servers, and what is in a folder."""

from dataclasses import replace

from tiny_model import CONTENTS, MODEL

PROGRAM = f"""
import signal
from regard.models.hub import registry, resolve
from regard.models.hub.registry import *
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits SIG_IGN
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as does what nohup starts
registry.KNOWN = {{"tiny": {replace(MODEL, hub=None)!r}}}
"""
FIND = PROGRAM + "print(resolve.find('tiny'))"
WATCHDOG = 120  # seconds that no passing test comes near
WRONG = CONTENTS | {"model.safetensors": bytes(len(CONTENTS["model.safetensors"]))}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names_in(folder):
    return [path.name for path in folder.iterdir()]
