"""One call as text: a line for each piece of its time, with a bar where it lay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BAR = 48
_COLUMNS = ("REQUEST", "BEGAN", "TOOK", "FIRST", "STATUS", "ROUTE", "MODEL", "ATTEMPTS", "WHAT")


def waterfall(call: Mapping[str, Any]) -> str:
    """A call as `/admin/traces/ID` gives it."""
    lines = [*_title(call), *_facts(call), ""]
    total = max(call["took_ms"], 0.001)
    tries = {tried["number"]: tried for tried in call["tries"]}
    names = ["  " * piece["depth"] + piece["name"] for piece in call["pieces"]]
    width = max(map(len, names))
    for name, piece in zip(names, call["pieces"], strict=True):
        bar = _bar(piece["start_ms"] / total, piece["took_ms"] / total)
        note = piece["note"] or (_attempt(tries[piece["attempt"]]) if piece["attempt"] else "")
        row = f"{name:<{width}}  {piece['start_ms']:>10.1f} {piece['took_ms']:>10.1f}  |{bar}|  {note}"
        lines.append(row.rstrip())
    return "\n".join(map(_plain, lines))


def table(calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls as `/admin/traces` gives them, a line each."""
    rows = [_COLUMNS, *(tuple(map(_plain, _row(call))) for call in calls)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def unheard(silent: Sequence[int]) -> str:
    """What to say of processes that did not answer, whose calls are missing; empty where all did."""
    if not silent:
        return ""
    numbers = ", ".join(map(str, silent))
    return f" No answer came from process {numbers}: what is remembered there is not shown."


def _plain(text: str) -> str:
    """Without what would move a terminal's cursor, or forge a line: the name of a model is what a client wrote."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _title(call: Mapping[str, Any]) -> list[str]:
    kind = f"{call['route']} {call['model']}".strip() + (" (stream)" if call["stream"] else "")
    first = f", first content after {call['ttft_ms']:.1f} ms" if call["ttft_ms"] is not None else ""
    return [
        f"{call['request_id']}  {kind}  {call['status']} {call['ending']} in {call['took_ms']:.1f} ms{first}",
        f"began {call['began']} in process {call['process']}",
    ]


def _facts(call: Mapping[str, Any]) -> list[str]:
    facts = []
    if call["trace_id"] is not None:
        kept = f"kept: {call['kept_for']}" if call["kept_for"] else "not kept"
        told = "workers were told to record" if call["sampled"] else "workers were told not to record"
        facts.append(f"trace {call['trace_id']} ({kept}; {told})")
    if call["fault"] is not None:
        facts.append(f"fault {_fault(call['fault'])}")
    if call["usage"] is not None:
        usage = call["usage"]
        about = "about " if usage["estimated"] else ""
        facts.append(
            f"tokens {about}{usage['prompt']} in ({usage['cached']} cached), {about}{usage['completion']} out; "
            f"bytes {call['bytes_in']} in, {call['bytes_out']} out"
        )
    if call["source"] is not None:
        facts.append(f"answered by {call['source']}")
    if call["class"] is not None:
        facts.append(f"class {call['class']}")
    return facts


def _attempt(tried: Mapping[str, Any]) -> str:
    parts = [tried["why"], tried["worker"], tried["end"] or "open"]
    if tried["status"]:
        parts.append(str(tried["status"]))
    if tried["fault"] is not None:
        parts.append(_fault(tried["fault"]))
    return " ".join(parts)


def _fault(fault: Mapping[str, str]) -> str:
    told = f"{fault['kind']} ({fault['whose']})"
    return f"{told}: {fault['why']}" if "why" in fault else told


def _bar(start: float, share: float) -> str:
    begins = min(int(start * BAR), BAR - 1)
    long = max(1, round(share * BAR))
    return (" " * begins + "=" * min(long, BAR - begins)).ljust(BAR)


def _row(call: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        call["request_id"],
        call["began"],
        f"{call['took_ms']:.1f} ms",
        "" if call["ttft_ms"] is None else f"{call['ttft_ms']:.1f} ms",
        str(call["status"]),
        call["route"],
        call["model"],
        str(call["attempts"]),
        call["ending"] if call["fault"] is None else _fault(call["fault"]),
    )
