"""Engines and arrivals on a virtual clock, against which the gateway's real choice of workers is run."""
