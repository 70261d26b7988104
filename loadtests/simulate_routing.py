#!/usr/bin/env python3
"""Run the policies of `route` against simulated engines on a virtual clock, the same seed for all.

loadtests/simulate_routing.py --seconds 300
"""

import argparse

from simulation.routing import POLICIES, SITUATIONS, simulate, table


def main() -> None:
    """Simulate, and print a table."""
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--seed", type=int, default=1, help="of arrivals and choices (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=300.0, help="of virtual time (default: %(default)s)")
    p.add_argument("--policy", choices=POLICIES, action="append", help="only these")
    p.add_argument("--situation", choices=SITUATIONS, action="append", help="only these")
    options = p.parse_args()
    rows = [
        simulate(name, policy, seed=options.seed, seconds=options.seconds)
        for name in options.situation or SITUATIONS
        for policy in options.policy or POLICIES
    ]
    print(table(rows))


if __name__ == "__main__":
    main()
