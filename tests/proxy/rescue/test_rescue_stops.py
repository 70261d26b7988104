"""Stop strings that are looked for at the gateway: as if one engine had said all of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy.rescue.stops import Stops


@dataclass
class Plain:
    """The engine's rules over a whole text, a token at a time, with nothing clever about them."""

    stops: list[str]
    least: int
    include: bool
    text: str = ""
    shown: int = 0
    count: int = 0

    def token(self, text: str, *, last: bool) -> tuple[str, str | None]:
        before = len(self.text)
        self.text += text
        self.count += 1
        matched = None
        if text and self.count > self.least:
            ends = []
            for place, stop in enumerate(self.stops):
                # Only what ends in the new text counts: the rest was looked at with the tokens before.
                ends += [
                    (end, place) for end in range(before + 1, len(self.text) + 1) if self.text[:end].endswith(stop)
                ]
            if ends:
                end, place = min(ends)
                matched = self.stops[place]
                self.text = self.text[: end if self.include else end - len(matched)]
        held = 0 if self.include or last or matched is not None else max(map(len, self.stops)) - 1
        begin, self.shown = self.shown, max(self.shown, len(self.text) - held)
        return self.text[begin : self.shown], matched


PIECES = st.lists(st.text("ab", max_size=3), min_size=1, max_size=14)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3)


@given(pieces=PIECES, stops=STOPS, cut=st.integers(0, 13), least=st.integers(0, 8), include=st.booleans())
def test_from_any_cut_it_says_what_one_engine_would_have_said(
    pieces: list[str], stops: list[str], cut: int, least: int, include: bool
) -> None:
    cut = min(cut, len(pieces) - 1)
    plain = Plain(stops, least, include)
    shown = ""
    for piece in pieces[:cut]:
        out, matched = plain.token(piece, last=False)
        shown += out
        if matched is not None:
            return  # there is nothing to go on with
    here = Stops(stops, shown, plain.text[len(shown) :], cut, least=least, include=include)
    for number, piece in enumerate(pieces[cut:], cut):
        last = number == len(pieces) - 1
        expected = plain.token(piece, last=last)
        assert here.feed(piece, 1, last=last) == expected
        if expected[1] is not None:
            return


def feed(stops: list[str], shown: str, behind: str, *pieces: str, include: bool = False) -> tuple[str, str | None]:
    here = Stops(stops, shown, behind, 3, include=include)
    said = ""
    for number, piece in enumerate(pieces):
        out, matched = here.feed(piece, 1, last=number == len(pieces) - 1)
        said += out
        if matched is not None:
            return said, matched
    return said, None


def test_one_that_began_before_the_cut_is_found() -> None:
    # Of "zebra" the client has nothing, because the first engine held it back.
    assert feed(["zebra"], "a ", "zeb", "ra", " x") == ("", "zebra")
    # Where it is to be seen nothing is held back: the client has the beginning.
    assert feed(["zebra"], "a zeb", "", "ra x", " y", include=True) == ("ra", "zebra")


def test_what_was_held_back_is_said_when_it_was_none() -> None:
    assert feed(["zebra"], "a ", "zeb", "ulon") == ("zebulon", None)


def test_several_tokens_in_one_piece_count_each() -> None:
    here = Stops(["x"], "a", "", 3, least=5)
    assert here.feed("x", 2, last=False) == ("x", None)
    assert here.feed("x", 1, last=False) == ("", "x")


@pytest.mark.parametrize("include", [False, True])
def test_little_is_kept_of_a_long_answer(include: bool) -> None:
    here = Stops(["never"], "", "", 0, include=include)
    said = "".join([here.feed("word ", 1, last=False)[0] for _ in range(10_000)])
    assert said == ("word " * 10_000)[: len(said)]
    assert len(said) == 50_000 - (0 if include else 4)
    assert len(here._text) <= 10
