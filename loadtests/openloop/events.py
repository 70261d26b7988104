"""Server-sent events: bytes in pieces of any size in, the payload of each whole event out."""


class EventReader:
    """Gives the `data` of each event; comments and other fields are passed over."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        buffered = self._rest + piece if self._rest else piece
        if b"\r" in buffered:
            # A carriage return at the end may be the first half of a line end: it waits for the next piece.
            held = b"\r" if buffered.endswith(b"\r") else b""
            whole = buffered[:-1] if held else buffered
            buffered = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *blocks, self._rest = buffered.split(b"\n\n")
        return [payload for block in blocks if (payload := _payload(block)) is not None]

    @property
    def unfinished(self) -> bool:
        """Whether part of an event came without its end."""
        return bool(self._rest.strip())


def _payload(block: bytes) -> bytes | None:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
