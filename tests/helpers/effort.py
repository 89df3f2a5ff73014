"""How much is tried: `make faults` tries more than other runs of the tests."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("FAULTS_EFFORT", "1"))
"""A factor of the number of damaged files, wrong plans and hostile names."""
