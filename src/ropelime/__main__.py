"""``python -m ropelime`` is the command line."""

import sys

from ropelime.cli import main

sys.exit(main())
