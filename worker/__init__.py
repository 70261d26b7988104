"""The worker side: the sidecar beside each engine, the engine launcher and the simulated engine."""
