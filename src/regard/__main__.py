"""``python -m regard`` is the ``regard`` command."""

import sys

from regard.cli import main

sys.exit(main())
