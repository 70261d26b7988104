"""`python -m tailrace.proxy`: the `tailrace` command, where its script is not on PATH."""

from __future__ import annotations

import sys

from tailrace.proxy.cli import main

if __name__ == "__main__":
    sys.exit(main())
