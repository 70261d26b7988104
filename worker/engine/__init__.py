"""The engine beside the sidecar: started or found, watched, warmed up, drained and ended.

`launch.engine()` is the one door; everything else here serves it.
"""
