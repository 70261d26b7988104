"""What calls cost: prices, and a record of each call that outlives processes, disks that fill up and power cuts.

Where to read: `plugin.py` is what a call meets; `bill.py` says what it comes to; `part.py` is what runs once on a host.
"""

from tailrace.plugins.billing.plugin import Billing

__all__ = ["Billing"]
