"""``python -m regard`` is the ``regard`` command."""

import sys

from regard.cli import main

if __name__ == "__main__":  # processes that a cluster starts import this file under another name
    sys.exit(main())
