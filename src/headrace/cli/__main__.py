"""`python -m headrace.cli` is `headrace`."""

import sys

from headrace.cli import main

sys.exit(main())
