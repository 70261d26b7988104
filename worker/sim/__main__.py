"""`python -m tailrace.worker.sim`."""

import sys

from tailrace.worker.sim.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
