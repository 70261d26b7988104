"""Puts this folder on the path of every test, so that they can `import fakes`."""
