"""Half-open circuits: one probe of the whole host, and its right always comes back."""

from __future__ import annotations

import pytest
from breaking import BROKEN, REFUSED, half_open, scene
from tailrace.plugins.breaker.circuit import SECOND, Why
from tailrace.proxy.choosing import candidates_for
from tailrace.proxy.fault import timed_out
from tailrace.proxy.fleet import SUSPECT
from tailrace.proxy.plugin import Target
from tailrace.proxy.repeatable import repeatable

pytestmark = pytest.mark.interpreted


@scene
async def test_half_open_with_one_probe_of_the_whole_host(hosts):
    with hosts(seats=3) as h:
        [h.answers(seat) for seat in range(3)]
        h.break_down(0)
        h.tick(5.1)
        for seat in range(3):
            h.answers(seat)
        h.tick()
        begun = [h.call(seat) for seat in (0, 1, 2, 0, 1, 2)]
        asked = [course.call.tries[0].worker.name for course in begun]
        assert sorted(asked) == ["a", "b", "b", "b", "b", "b"]
        for _ in range(30):
            h.tick()
            assert {h.answers(seat) for seat in range(3)} == {"b"}, "while the probe runs there is no other"
        for course in begun:
            course.race.cancel()


@scene
async def test_a_good_probe_lets_it_in_step_by_step(hosts):
    with hosts(ramp=5.0) as h:
        half_open(h)
        assert h.answers() == "a"
        assert h.plugins[0].panel.probes["passed"] == 1
        shares = []
        for _ in range(6):
            shares.append(h.shares())
            h.tick(1.01)
        assert shares == sorted(shares)
        assert shares[0] < 0.25
        assert shares[-1] > 0.95
        assert not h.plugins[0].panel.odd


@scene
async def test_others_let_it_in_as_well(hosts):
    with hosts(seats=2) as h:
        h.answers(1)
        half_open(h)
        assert h.answers() == "a"
        assert h.answers(1) == "b"
        h.tick()
        assert 0 < h.shares(1) < 0.25


@scene
async def test_a_bad_probe_doubles_the_time(hosts):
    with hosts() as h:
        half_open(h)
        for length in (10, 20, 40, 80, 160, 300, 300):
            assert h.answers(fault=BROKEN) == "a"
            verdict = h.circuit().verdict
            assert (verdict.until - verdict.since) / SECOND == length
            h.tick(length - 0.1)
            h.answers()
            h.tick()
            assert h.answers() == "b"
            h.tick(0.2)
        assert h.plugins[0].panel.probes["failed"] == 7


@scene
async def test_RTE_07_a_neutral_probe_is_given_back(hosts):
    """It ends by a caller's fault, its client, the limit of the call or another plugin: nothing is decided by that."""
    with hosts() as h:
        half_open(h)
        verdict = h.circuit().verdict

        def again():
            assert h.circuit().verdict == verdict
            assert not h.circuit().token
            h.answers()
            h.tick()

        assert h.answers(fault=REFUSED) == "a"
        again()
        left = h.call()
        assert left.call.tries[0].worker.name == "a"
        left.race.cancel()
        again()
        late = h.call()
        assert late.call.tries[0].worker.name == "a"
        late.race.expire(timed_out("total", 1.0))
        again()
        failing = h.call()
        assert failing.call.tries[0].worker.name == "a"
        failing.race._break_off(ValueError("a policy failed"))
        again()
        assert h.plugins[0].panel.probes["neutral"] == 4
        assert h.answers() == "a"
        assert h.plugins[0].panel.probes["passed"] == 1


@scene
async def test_RTE_07_a_probe_that_never_began_is_given_back(hosts):
    """Another plugin would not have the worker after all."""
    with hosts() as h:
        half_open(h)
        refusing = [True]
        plugin = h.plugins[0]
        chosen = plugin._hearing.chosen

        def on_chosen(call, attempt):
            chosen(call, attempt)
            return attempt.worker.name != "a" or not refusing[0]

        plugin._hearing.chosen = on_chosen
        assert h.answers() == "b"
        assert h.circuit().probe is not None
        refusing[0] = False
        h.tick()
        assert plugin.panel.probes["neutral"] == 1
        h.answers()
        h.tick()
        assert h.answers() == "a"


@scene
async def test_a_process_without_calls_leaves_the_probe_to_others(hosts):
    with hosts(seats=2) as h:
        h.answers(1)
        half_open(h)
        assert h.circuit(0).token
        waited = 0
        while h.answers(1) != "a":
            h.tick()
            waited += 1
        assert 8 < waited < 25
        assert not h.circuit(0).token


@scene
async def test_no_probe_of_what_must_not_be_repeated(hosts):
    with hosts() as h:
        half_open(h)
        assert not repeatable(h.call(store=True).call)
        assert h.answers(store=True) == "b"
        assert h.answers() == "a"


@scene
async def test_a_probe_that_another_attempt_outran_has_failed(hosts):
    """Else a worker that hangs would be probed without end: whoever is hedged never waits for it."""
    with hosts() as h:
        half_open(h)
        probing = h.call()
        assert probing.call.tries[0].worker.name == "a"
        assert probing.race._start("hedge", Target(), fresh=False)
        other = probing.call.tries[1].worker
        other.accept()
        other.answer()
        assert h.plugins[0].panel.probes == {"passed": 0, "failed": 1, "neutral": 0}
        assert h.circuit().verdict.times == 2
        probing.race.cancel()
        probing.race.finished(probing.race.winner, "won")


@scene
async def test_RTE_07_only_who_may_get_a_call_is_nominated_for_it(hosts):
    """In a pool of many, a probe is no way to a worker without the adapter, to another pool's, or to a suspect."""
    with hosts(workers="abcdefghijkl") as h:
        h.call().race.cancel()
        waiting, panel = h.fleets[0][0], h.plugins[0].panel
        panel.open(panel.of(waiting), Why.FAULTS, "a test")
        h.tick(5.1)
        course = h.call()
        course.race.cancel()
        h.tick()
        call, entry = course.call, course.call.entry
        assert panel.of(waiting).waits

        def drawn():
            return sum(waiting in candidates_for(call, entry, None) for _ in range(30))

        assert drawn() == 30
        entry.candidates = [worker for worker in course.workers if worker is not waiting]
        assert drawn() == 0
        entry.candidates = list(course.workers)
        waiting.bars[SUSPECT] = 1.0
        assert drawn() < 30, "one of the last that are left, it is drawn as any other"
        assert h.call().call.tries[0].worker is not waiting
        waiting.bars.clear()
        assert h.answers() == "a"


@scene
async def test_UPD_the_chain_before_a_reload_leaves_probes_to_the_new_one(hosts):
    """Both run in one process, with the same workers, for as long as an old stream does."""
    with hosts(seats=2) as h:
        old, new = (plugin.panel for plugin in h.plugins)
        h.break_down(0)
        h.fleets[1] = h.fleets[0]
        waiting = h.fleets[0][0]
        h.tick()
        assert waiting.bars, "the new one has not met it yet"
        h.answers(1)
        h.tick(5.1)
        h.answers(0)
        h.answers(1)
        for _ in range(5):
            h.tick()
            assert new.circuits[waiting].waits
            assert not old.circuits[waiting].token
        assert h.answers(1) == "a"
        assert new.probes["passed"] == 1
        h.tick()
        assert not old._open


@scene
async def test_UPD_the_right_to_probe_goes_over_to_the_new_chain(hosts):
    with hosts(seats=2) as h:
        old, new = (plugin.panel for plugin in h.plugins)
        half_open(h, 0)
        h.fleets[1] = h.fleets[0]
        waiting = h.fleets[0][0]
        assert old.circuits[waiting].waits
        assert h.answers(1) == "a", "the new chain has not met it yet"
        h.tick()
        assert not old.circuits[waiting].token
        assert new.circuits[waiting].waits
        assert h.answers(1) == "a"
        assert new.probes["passed"] == 1
