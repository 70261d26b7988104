"""Puts the folders of the load-test scripts on the path: they are no installed package."""

import sys
from pathlib import Path

LOADTESTS = Path(__file__).parents[2] / "loadtests"
sys.path[:0] = [str(LOADTESTS), str(LOADTESTS / "bench")]
