"""Who may call: API keys from a file, SQLite or PostgreSQL, and tokens of issuers; held in memory, refused at once.

Where to read: `plugin.py` is what a call meets; `keeper.py` is what runs once on a host; `table.py` is what is between.
"""

from tailrace.plugins.auth.plugin import Auth

__all__ = ["Auth"]
