"""How many series a process may have, and where those go that are too many."""

import math

import pytest
from tailrace.proxy.metrics import Segment, Totals, catalogue, register, render
from tailrace.proxy.metrics.family import counter, gauge, histogram
from tailrace.proxy.metrics.register import Register

MODELS = counter("test_models_total", "By model.", "route", "model", limit=10)
LEVELS = gauge("test_level", "Level.", "worker", limit=4)


def counted(segment, family):
    reading = segment.read()
    return {values: slots[0] for values, slots in reading[family.name][1].items()} if family.name in reading else {}


def folded(segment):
    return counted(segment, catalogue.SERIES_FOLDED)[()]


def test_the_same_labels_are_the_same_series(segment):
    register = Register(segment)
    first = register.series(MODELS, ("chat", "a"))
    assert register.series(MODELS, ("chat", "a")) == first
    assert register.series(MODELS, ("chat", "b")) != first
    assert folded(segment) == 0


def test_too_many_values_fold_into_other_and_no_count_is_lost(segment):
    register = Register(segment)
    for number in range(1000):
        segment.slots[register.series(MODELS, ("chat" if number % 2 else "score", str(number)))] += 1
    counts = counted(segment, MODELS)
    assert len(counts) == 12
    assert counts["chat", "other"] == counts["score", "other"] == 495
    assert sum(counts.values()) == 1000
    assert folded(segment) == 990


def test_one_family_leaves_room_for_the_others(segment):
    register = Register(segment)
    for number in range(1000):
        register.series(MODELS, ("chat", str(number)))
    other = counter("test_others_total", "Others.", "code")
    segment.slots[register.series(other, ("200",))] += 1
    assert counted(segment, other) == {("200",): 1.0}


def test_a_gauge_without_room_is_left_out(segment):
    register = Register(segment)
    for number in range(6):
        segment.slots[register.series(LEVELS, (str(number),))] = number
    assert counted(segment, LEVELS) == {(str(number),): float(number) for number in range(4)}
    assert folded(segment) == 2


def test_all_families_together_have_a_bound(segment, monkeypatch):
    monkeypatch.setattr(register, "MAX_SERIES", 20)
    own = Register(segment)
    families = [counter(f"test_{number}_total", "One of many.", "model") for number in range(10)]
    for family in families:
        for model in range(50):
            segment.slots[own.series(family, (str(model),))] += 1
    assert sum(len(counted(segment, family)) for family in families) < 20 + len(families)
    assert sum(sum(counted(segment, family).values()) for family in families) == 500


@pytest.mark.parametrize(
    ("family", "label"),
    [
        pytest.param(histogram("test_seconds", "Wide.", tuple(range(60)), "model", limit=10**6), "{}", id="slots"),
        pytest.param(counter("test_total", "Long.", "model", limit=10**6), "{}" + "x" * 1500, id="table"),
    ],
)
def test_a_full_segment_still_counts_everything(segment, family, label, monkeypatch):
    monkeypatch.setattr(register, "MAX_SERIES", 10**6)
    own = Register(segment)
    for number in range(2500):
        slot = own.series(family, (label.format(number),))
        segment.slots[slot + family.width - 1] += 1
    series = segment.read()[family.name][1]
    assert sum(slots[-1] for slots in series.values()) == 2500
    assert series["other",][-1] > 100
    assert folded(segment) == series["other",][-1]
    for number in range(50):
        late = counter(f"test_late_{number}_total", "Late.", "model")
        segment.slots[own.series(late, ("m" * 1500,))] += 1
        assert counted(segment, late) == {("other",): 1.0}


def test_a_label_without_end_folds(segment):
    own = Register(segment)
    segment.slots[own.series(MODELS, ("chat", "x" * 100_000))] += 1
    assert counted(segment, MODELS) == {("chat", "other"): 1.0}


def test_one_name_for_two_things_keeps_the_first(segment):
    own = Register(segment)
    segment.slots[own.series(MODELS, ("chat", "a"))] += 1
    segment.slots[own.series(counter(MODELS.name, "Other labels.", "model"), ("b",))] += 1
    assert counted(segment, MODELS) == {("chat", "a"): 1.0}


def test_retired_series_make_room_and_their_counts_stay_in_the_sum(segment):
    own = Register(segment)
    for number in range(100):
        segment.slots[own.series(MODELS, ("chat", str(number)))] += 1
        own.retire(MODELS, ("chat", str(number)))
    counts = counted(segment, MODELS)
    assert ("chat", "99") in counts
    assert sum(counts.values()) == 100
    assert len(counts) <= 10
    assert folded(segment) == 0


def test_a_retired_gauge_disappears_at_once_and_may_come_back(segment):
    own = Register(segment)
    slot = own.series(LEVELS, ("a",))
    segment.slots[slot] = 3
    own.retire(LEVELS, ("a",))
    assert "test_level" not in render([segment], Totals())
    segment.slots[own.series(LEVELS, ("a",))] = 4
    own._drop_retired()
    assert counted(segment, LEVELS) == {("a",): 4.0}


def test_readers_wait_while_the_table_is_rewritten(segment, monkeypatch):
    own = Register(segment)
    own.series(MODELS, ("chat", "kept"))
    own.series(MODELS, ("chat", "gone"))
    own.retire(MODELS, ("chat", "gone"))
    epochs = []
    append = Segment.append

    def noted(self, record):
        epochs.append(self._words[2])
        append(self, record)

    monkeypatch.setattr(Segment, "append", noted)
    own._drop_retired()
    assert len(epochs) > 2
    assert all(epoch % 2 for epoch in epochs)
    assert segment._words[2] % 2 == 0
    assert counted(segment, MODELS) == {("chat", "kept"): 0.0, ("chat", "other"): 0.0}


def test_used_slots_begin_at_zero_again(segment):
    own = Register(segment)
    for number in range(4):
        segment.slots[own.series(LEVELS, (str(number),))] = 9
    own.retire(LEVELS, ("2",))
    own.series(LEVELS, ("new",))
    assert counted(segment, LEVELS)["new",] == 0.0
    assert ("2",) not in counted(segment, LEVELS)
    assert not any(math.isnan(level) for level in counted(segment, LEVELS).values())
