"""`python -m placer` is the `placer` command."""

import sys

from placer.cli import main

sys.exit(main())
