"""How many further attempts there may be, on a clock of the test's."""

from __future__ import annotations

import itertools

from tailrace.proxy.retry_budget import RetryBudget


def spend(budget: RetryBudget, now: float) -> int:
    """All there is."""
    count = 0
    while budget.spend(now):
        count += 1
    return count


def test_a_share_of_the_calls_and_some_in_any_case():
    budget = RetryBudget(0.2, 10.0, 10.0)
    assert spend(budget, 0.0) == 100
    for _ in range(50):
        budget.earn(0.0)
    assert spend(budget, 0.0) == 10
    assert (budget.earned, budget.spent) == (50, 110)


def test_nothing_is_left_of_a_share_without_calls():
    budget = RetryBudget(0.05, 0.0, 30.0)
    assert not budget.spend(0.0)
    for _ in range(19):
        budget.earn(0.0)
    assert not budget.spend(0.0)
    budget.earn(0.0)
    assert budget.spend(0.0)
    assert not budget.spend(0.0)


def test_what_was_earned_is_forgotten_after_the_window():
    budget = RetryBudget(0.5, 0.0, 10.0)
    for second in range(10):
        budget.earn(float(second))
    assert budget.left(9.5) == 5
    assert budget.left(12.5) == 3.5
    assert budget.left(19.0) == 0.0
    budget.earn(1000.0)
    assert budget.left(1000.0) == 0.5


def test_what_was_spent_comes_back_after_the_window():
    budget = RetryBudget(0.0, 1.0, 10.0)
    assert spend(budget, 3.0) == 10
    assert spend(budget, 12.9) == 0
    assert spend(budget, 13.0) == 10


def test_in_no_window_is_there_more_than_the_budget():
    """Whenever one looks back over a window, less a slice of it, what was spent in it had been earned."""
    budget = RetryBudget(0.2, 0.0, 10.0)
    calls, spent = [], []
    for tick in range(4000):
        now = tick * 0.01
        if tick % 3 == 0:
            calls.append(now)
            budget.earn(now)
        if budget.spend(now):
            spent.append(now)
        since = now - 9.0
        assert len([each for each in spent if each > since]) <= 0.2 * len([each for each in calls if each > now - 10.0])
    assert len(spent) > 200


def test_how_much_of_it_is_left():
    budget = RetryBudget(0.05, 0.0, 30.0)
    for _ in range(19):
        budget.earn(0.0)
    assert budget.ease(0.0) == 1.0  # not a whole one yet
    for _ in range(61):
        budget.earn(0.0)
    assert budget.ease(0.0) == 1.0
    assert budget.spend(0.0)
    assert budget.ease(0.0) == 0.75
    assert spend(budget, 0.0) == 3
    assert budget.ease(0.0) == 0.0


def test_few_calls_put_one_by_in_the_end():
    """One in twenty, however rarely they come, and never more."""
    budget = RetryBudget(0.05, 0.0, 30.0, carried=1.0)
    spent = []
    for number in range(1, 201):
        budget.earn(number * 60.0)
        spent += [number] * spend(budget, number * 60.0 + 1.0)
    assert len(spent) in (9, 10)
    assert all(second - first >= 20 for first, second in itertools.pairwise(spent))
    assert spend(budget, 10**6) <= 1


def test_what_was_spent_is_not_put_by():
    budget = RetryBudget(0.5, 0.0, 10.0, carried=1.0)
    for _ in range(4):
        budget.earn(0.0)
    assert spend(budget, 5.0) == 2
    assert budget.left(100.0) == 0.0
