"""Words that a slot of the ring cannot hold, cut to what it can: no label keeps a call from its charge."""

from __future__ import annotations

import msgspec
from tailrace.proxy.ledger.layout import LATE_ROOM, WORDS_ROOM
from tailrace.proxy.ledger.record import Late, Opening

_CUT = "…"
_TRIES = (64, 40, 24, 12)


def fitted_opening(opening: Opening) -> Opening:
    """The same call with shorter words; who pays, and by which rates, is cut last."""
    cut = opening
    for longest in _TRIES:
        cut = msgspec.structs.replace(
            opening,
            call=shortened(opening.call, longest),
            tags=tuple(shortened(tag, longest) for tag in opening.tags[: longest // 8]),
            deployment=shortened(opening.deployment, longest),
            route=shortened(opening.route, longest),
            service_class=shortened(opening.service_class, longest),
        )
        if fits(cut, WORDS_ROOM):
            return cut
    for longest in _TRIES:
        cut = msgspec.structs.replace(
            cut,
            charge_key=shortened(opening.charge_key, 128),
            tenant=shortened(opening.tenant, longest),
            key=shortened(opening.key, longest),
            model=shortened(opening.model, longest),
            price_version=shortened(opening.price_version, longest),
            currency=shortened(opening.currency, longest),
            tags=(),
        )
        if fits(cut, WORDS_ROOM):
            return cut
    raise AssertionError("that many characters fit, however they are escaped")


def fitted_late(late: Late) -> Late:
    """The same ending with shorter words."""
    for longest in _TRIES:
        cut = Late(shortened(late.ending, longest), shortened(late.echoed_model, longest))
        if fits(cut, LATE_ROOM):
            return cut
    raise AssertionError("two words of twelve characters fit")


def shortened(text: str, longest: int) -> str:
    """The beginning of a long text, marked as one, without what UTF-8 cannot say."""
    text = text[: longest + 1].encode(errors="replace").decode()
    return text if len(text) <= longest else text[: longest - 1] + _CUT


def fits(words: Opening | Late, room: int) -> bool:
    """Whether the words take no more than so many bytes, and can be written."""
    try:
        return len(msgspec.json.encode(words)) <= room
    except UnicodeEncodeError:
        return False
