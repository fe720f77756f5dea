"""Run as a script by `download`: fetch files of a repository on the Hugging Face hub into a folder.

A process of its own ends with the library's threads, and its long timeouts can be cut short.
"""

from __future__ import annotations

import os
import sys
import threading

TIMEOUT = 5.0  # seconds for the first answer of the hub; the library alone would try for 23


def main(repository: str, folder: str, *names: str) -> None:
    """Fetch `names` of `repository` into `folder`."""
    from huggingface_hub import HfApi, hf_hub_download

    timer = threading.Timer(TIMEOUT, _give_up)
    timer.daemon = True
    timer.start()
    revision = HfApi().model_info(repository, timeout=TIMEOUT).sha
    timer.cancel()
    for name in names:
        hf_hub_download(repository, name, revision=revision, local_dir=folder)


def _give_up() -> None:
    sys.stderr.write(f"no answer within {TIMEOUT:g} seconds\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
