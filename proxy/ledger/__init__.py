"""The ledger: what every call used and what it cost, once each, through the death of any process and a power cut.

    ring       one process's records in memory that outlives it; written on the request path, without a system call
    keeper     a thread beside the processes: copies settlements to the log, settles what the dead left open
    log        segments of JSON lines, each line hashed with the one before; durable after at most 20 ms
    sinks      SQLite or PostgreSQL, filled out of memory (`lately`) or from the log; each row once, by its charge key

A record begins in `Ring.open`, before the first upstream byte, and ends in `Ring.settle`, before the last client byte.
"""
