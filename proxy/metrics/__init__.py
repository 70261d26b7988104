"""What a process counts about itself, and how a supervisor adds its processes up for Prometheus.

A process writes into a `Segment`: memory that its supervisor maps too and reads without a lock.

- `Segment.create()` makes one; hand `segment.fd` to the process (`pass_fds=[segment.fd]`) and keep the segment to read.
- In the process, `Segment.attach(fd)` goes to `Service(loop, limits, segment)`; a role's process does that
  with `Seat.metrics`. Without one, a segment of the process's own is used: `service.metrics.segment`.
- When a process has died: `totals.add_final(segment)` keeps its counters (its gauges leave), then `segment.close()`.
- `render(segments, totals)` is the text of a scrape: the sum of the living and what the dead left behind.
- What the supervisor itself knows, it counts in a segment of its own, through `Supervision(segment)`.

`segment` is the layout of the memory, `register` gives series their places in it, `catalogue` is the list of all
metrics, `calls` counts requests, `levels` writes gauges twice a second, `plugin_values` and `host_values` ask plugins
and their host parts for theirs, by `asking`, `exposition` adds up and renders.
"""

from tailrace.proxy.metrics.exposition import CONTENT_TYPE, Totals, render
from tailrace.proxy.metrics.segment import Segment
from tailrace.proxy.metrics.supervision import Supervision

__all__ = ["CONTENT_TYPE", "Segment", "Supervision", "Totals", "render"]
