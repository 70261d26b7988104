"""In which format metrics are wanted."""

from __future__ import annotations

_OPEN = "application/openmetrics-text"
_TEXT = ("text/plain", "text/*", "*/*")


def wants_open_metrics(accept: str) -> bool:
    """Whether an Accept header names OpenMetrics, and prefers nothing else that there is."""
    best: dict[str, float] = {}
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        best[media] = max(best.get(media, 0.0), _weight(parameters))
    wanted = best.get(_OPEN, 0.0)
    return wanted > 0.0 and all(best.get(other, 0.0) <= wanted for other in _TEXT)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
