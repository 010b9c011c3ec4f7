"""``python -m trustax``: the command line."""

import sys

from trustax.cli.main import main

sys.exit(main())
