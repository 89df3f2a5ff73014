"""`python -m placer` is the `placer` command."""

import sys

from placer.command.main import main

sys.exit(main())
