"""Random bytes on both sides of a gateway: `make fuzz-short`, `make fuzz`."""
