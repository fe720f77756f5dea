"""Run as a script by `_download`: fetch files of a repository on the Hugging Face hub into a folder.

In a process of its own, so that the library's threads end with it and its long waits can be cut short.
"""

from __future__ import annotations

import os
import sys
import threading

PATIENCE = 5.0  # seconds until the hub has answered once; the library alone would try for 23


def main(repository: str, folder: str, *names: str) -> None:
    """Fetch `names` of `repository` into `folder`."""
    from huggingface_hub import HfApi, hf_hub_download

    alarm = threading.Timer(PATIENCE, _give_up)
    alarm.daemon = True
    alarm.start()
    revision = HfApi().model_info(repository, timeout=PATIENCE).sha
    alarm.cancel()
    for name in names:
        hf_hub_download(repository, name, revision=revision, local_dir=folder)


def _give_up() -> None:
    sys.stderr.write(f"no answer within {PATIENCE:g} seconds\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
