"""What pieces a call's time falls into, and the text that shows them."""

from __future__ import annotations

from typing import Any

from tailrace.proxy.trace.pieces import pieces_of
from tailrace.proxy.trace.plain import summary, whole
from tailrace.proxy.trace.told import Flaw, Record, Stages, Traced, Tried
from tailrace.proxy.trace.waterfall import table, waterfall

MS = 1_000_000


def tried(number: int = 1, **changes: Any) -> Tried:
    made = Tried(number, "first", "http://10.0.0.1:8000", "m", 12 * MS, 13 * MS, 500 * MS, 0, 200, True, "won", None)
    return made._replace(**changes)


def record(*tries: Tried, **changes: Any) -> Record:
    made = Record(
        "req_1", None, "POST", "chat", "/v1/chat/completions", "m", "m", True, "", 0, 10 * MS, 0, 0, 500 * MS, 900 * MS,
        200, "completed", None, None, 100, 2000, "", Stages(21 * MS, 100 * MS, 367 * MS, 400 * MS, 2 * MS, 0), tries,
    )  # fmt: skip
    return made._replace(**changes)


def times(one: Record) -> dict[str, tuple[float, float]]:
    return {piece.name: (piece.began / MS, (piece.ended - piece.began) / MS) for piece in pieces_of(one)}


def test_a_stream_from_its_head_to_its_end() -> None:
    assert times(record(tried())) == {
        "call": (0, 900),
        "client_edge": (0, 10),
        "gateway": (10, 2),
        "attempt 1": (12, 888),
        "connect": (12, 1),
        "network": (13, 20),
        "queue": (33, 100),
        "prefill": (133, 367),
        "decode": (500, 400),
    }


def test_pieces_stand_behind_their_parents_and_lie_within_them() -> None:
    first = tried(end="failed", ended=300 * MS, first=0, flaw=Flaw("overloaded", "engine", "x", ""))
    again = tried(2, why="retry", began=300 * MS, sent=301 * MS)
    pieces = pieces_of(record(first, again))
    for number, piece in enumerate(pieces):
        assert piece.parent < number
        assert piece.began <= piece.ended
        if piece.parent >= 0:
            assert pieces[piece.parent].began <= piece.began
            assert piece.ended <= pieces[piece.parent].ended
    assert [piece.name for piece in pieces if piece.parent == 0][-2:] == ["attempt 1", "attempt 2"]


def test_a_whole_answer_is_the_gateways_from_its_last_byte_on() -> None:
    stages = Stages(1 * MS, 0, 300 * MS, 187 * MS, 0, 0)
    found = times(record(tried(streaming=False), stream=False, stages=stages))
    assert found["prefill"] == (13, 300)
    assert found["decode"] == (313, 187)
    assert found["attempt 1"] == (12, 488)
    assert found["answer"] == (500, 400)


def test_a_call_that_asked_nobody() -> None:
    found = times(record(first=0, stages=None, status=429, ending="refused"))
    assert found == {"call": (0, 900), "client_edge": (0, 10), "gateway": (10, 890)}


def test_an_attempt_that_got_no_connection() -> None:
    found = times(record(tried(sent=0, first=0, end="failed"), first=0))
    assert found["connect"] == (12, 888)


def test_a_stream_that_went_on_elsewhere() -> None:
    lost = tried(ended=600 * MS, end="failed", flaw=Flaw("connection_lost", "network", "x", "reset"))
    heir = tried(2, why="rescue", began=601 * MS, sent=602 * MS, first=650 * MS, worker="http://10.0.0.2:8000")
    pieces = {(piece.name, piece.parent) for piece in pieces_of(record(lost, heir))}
    ordered = [piece.name for piece in pieces_of(record(lost, heir))]
    first, second = ordered.index("attempt 1"), ordered.index("attempt 2")
    assert {("decode", first), ("decode", second), ("prefill", second)} <= pieces
    text = waterfall(whole(record(lost, heir), 0, 0))
    assert "rescue http://10.0.0.2:8000 won 200" in text
    assert "connection_lost (network): reset" in text


def test_what_another_call_got_is_not_the_gateways_own_time() -> None:
    pieces = {piece.name: piece for piece in pieces_of(record(first=0, stages=None, source="follow", waited=500 * MS))}
    assert pieces.keys() == {"call", "client_edge", "answer"}
    assert pieces["answer"].note == "by follow, 500.0 ms of it waited for"


def test_while_nobody_is_asked_there_is_a_pause() -> None:
    failed = tried(ended=100 * MS, end="failed", first=0, flaw=Flaw("overloaded", "engine", "x", ""))
    again = tried(2, why="retry", began=150 * MS, sent=151 * MS)
    whole_call = record(failed, again, waited=MS)
    assert times(whole_call)["pause"] == (100, 50)
    [gateway] = [piece for piece in pieces_of(whole_call) if piece.name == "gateway"]
    assert gateway.note == "1.0 ms of it in line"
    assert times(record(failed, first=0))["pause"] == (100, 800)


def test_a_call_that_gave_its_place_up_was_not_in_line_before() -> None:
    recalled = tried(ended=100 * MS, end="cancelled", first=0)
    again = tried(2, why="requeue", began=450 * MS, sent=451 * MS)
    pieces = {piece.name: piece for piece in pieces_of(record(recalled, again, waited=350 * MS, requeued=350 * MS))}
    assert pieces["gateway"].note == ""
    assert (pieces["pause"].began, pieces["pause"].ended) == (100 * MS, 450 * MS)
    assert pieces["pause"].note == "in line once more"


def test_attempts_side_by_side_have_no_pause_between_them() -> None:
    slow = tried(first=0, ended=500 * MS, end="cancelled")
    quick = tried(2, why="hedge", began=200 * MS, sent=201 * MS)
    assert "pause" not in times(record(slow, quick))


def test_long_phases_of_plugins_lie_where_they_were() -> None:
    traced = Traced(
        "4bf9" * 8, "", 1, 7, "slow", (("auth", "on_request", 11 * MS, MS), ("x", "on_answer", 501 * MS, MS))
    )
    pieces = pieces_of(record(tried(), trace=traced))
    by_name = {piece.name: piece for piece in pieces}
    assert pieces[by_name["auth.on_request"].parent].name == "gateway"
    assert pieces[by_name["x.on_answer"].parent].name == "call"


def test_the_text() -> None:
    traced = Traced("4bf9" * 8, "", 1, "c0ffee" * 2 + "00", "slow", ())
    usage = (12, 40, 8, False)
    lines = waterfall(
        whole(record(tried(), trace=traced, usage=usage, waited=MS), 1_800_000_000 * 10**9, 3)
    ).splitlines()
    assert lines[0] == "req_1  chat m (stream)  200 completed in 900.0 ms, first content after 500.0 ms"
    assert lines[1] == "began 2027-01-15T08:00:00.000Z in process 3"
    assert lines[2].startswith("trace 4bf94bf9")
    assert "kept: slow" in lines[2]
    assert lines[3] == "tokens 12 in (8 cached), 40 out; bytes 100 in, 2000 out"
    bars = {line.split("|")[0].split()[0]: line.split("|")[1] for line in lines if "|" in line}
    assert bars["call"] == "=" * 48
    assert bars["decode"].startswith(" " * 26 + "=")
    assert "1.0 ms of it in line" in next(line for line in lines if line.lstrip().startswith("gateway"))


def test_what_a_client_wrote_moves_no_cursor_and_forges_no_line() -> None:
    forged = record(tried(), model="m\x1b[2J\nreq_2  chat m  200\u202e")
    for text, lines in ((waterfall(whole(forged, 0, 0)), 12), (table([summary(forged, 0, 0)]), 2)):
        assert r"m\x1b[2J\x0areq_2  chat m  200\x202e" in text
        assert len(text.splitlines()) == lines
        assert all(line.isprintable() for line in text.splitlines())


def test_a_line_for_each_of_many() -> None:
    flaw = Flaw("connect_failed", "network", "x", "connection refused")
    text = table([summary(record(tried(), flaw=flaw, status=502), 0, 0), summary(record(stream=False, first=0), 0, 1)])
    heading, one, other = text.splitlines()
    assert heading.split() == ["REQUEST", "BEGAN", "TOOK", "FIRST", "STATUS", "ROUTE", "MODEL", "ATTEMPTS", "WHAT"]
    assert one.endswith("connect_failed (network): connection refused")
    assert other.endswith("completed")
