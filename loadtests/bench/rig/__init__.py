"""What the benchmarks share: the mock worker, the proxies under test, and the reading of their CPU clocks."""
