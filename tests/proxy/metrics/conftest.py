"""Lets these tests `import scrape`."""
