"""The attempt engine in worlds that are drawn by seeds: whatever happens, in whatever order, its rules hold."""
