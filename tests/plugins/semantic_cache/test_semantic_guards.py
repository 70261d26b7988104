"""What keeps an answer from a question that only looks like the one that it was given to."""

from __future__ import annotations

import pytest
from tailrace.plugins.semantic_cache.guards import GUARDS, objection
from tailrace.plugins.semantic_cache.marks import marks_of
from tailrace.plugins.semantic_cache.settings import ALL_GUARDS

APART = [
    ("numbers", "What does error 404 mean?", "What does error 403 mean?"),
    ("numbers", "Is 1,000 enough?", "Is 10,000 enough?"),
    ("numbers", "Give me three tips.", "Give me five tips."),
    ("numbers", "When did World War II end?", "When did World War I end?"),
    ("numbers", "Subtract 5 from 9.", "Subtract 9 from 5."),
    ("numbers", "the model X200", "the model X300"),
    ("units", "How many grams are 3 ounces?", "How many grams are 3 pounds?"),
    ("units", "Is 10GB large?", "Is 10MB large?"),
    ("units", "Is $100 much?", "Is €100 much?"),
    ("units", "convert 5 miles and 3 feet", "convert 3 miles and 5 feet"),
    ("dates", "Are you open on Sunday?", "Are you open on Saturday?"),
    ("dates", "Is there a train at 8 am?", "Is there a train at 8 pm?"),
    ("dates", "What happens in May?", "What happens in June?"),
    ("dates", "the weather today", "the weather tomorrow"),
    ("negation", "What should I eat?", "What should I not eat?"),
    ("negation", "Why does it print?", "Why doesn\u2019t it print?"),
    ("negation", "log in with a password", "log in without a password"),
    ("opposites", "How do I enable it?", "How do I disable it?"),
    ("opposites", "How do I turn it on?", "How do I turn it off?"),
    ("opposites", "the maximum size", "the minimum size"),
    ("opposites", "before the run", "after the run"),
    ("asked", "Who founded it?", "When was it founded?"),
    ("asked", "How much is the warranty?", "How long is the warranty?"),
    ("names", "What is the capital of Germany?", "What is the capital of France?"),
    ("names", "What is the capital of Germany?", "what is the capital of france"),
    ("names", "Do I need a visa for the US?", "Do I need a visa for us?"),
    ("direction", "Is Java faster than Python?", "Is Python faster than Java?"),
    ("direction", "convert miles to kilometers", "convert kilometers to miles"),
    ("direction", "Do cats eat dogs?", "Do dogs eat cats?"),
    ("words", "capital of spain", "capital of portugal"),
    ("words", "How do I reset my password?", "How do I reset my username?"),
    ("words", "\u9996\u90fd\u306f\u3069\u3053\u3067\u3059\u304b", "\u4eba\u53e3\u306f\u3069\u3053\u3067\u3059\u304b"),
]
TOGETHER = [
    ("How do I reset my password?", "Please tell me how I can reset my password"),
    ("What is the capital of Germany?", "what's germany's capital"),
    ("When did World War II end?", "In what year did World War 2 end?"),
    ("Give me three tips for sleep.", "Give me 3 tips for sleep"),
    ("Convert 5 km to miles", "How many miles are 5 kilometers?"),
    ("Is it open on 24 December?", "Is it open on December 24?"),
    ("The printer does not print.", "The printer doesn't print."),
    ("TCP vs UDP, what is the difference?", "What is the difference between TCP and UDP?"),
    ("How do I sort a list in Python?", "How do I sort a Python list?"),
    ("How do I cancel my subscription?", "cancelling subscriptions"),
]


@pytest.mark.parametrize(("guard", "one", "other"), APART)
def test_two_questions_are_kept_apart(guard, one, other):
    assert not GUARDS[guard](marks_of(one), marks_of(other))
    assert not GUARDS[guard](marks_of(other), marks_of(one))


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_other_words_for_the_same_question(one, other):
    assert objection(marks_of(one), marks_of(other), ALL_GUARDS) is None
    assert objection(marks_of(other), marks_of(one), ALL_GUARDS) is None


@pytest.mark.parametrize(
    "text", ["", "?!", "...", "\x00", "\U0001f600" * 50, "a" * 5000, "1/2/3/4", "''''", "km/h C++ $"]
)
def test_any_text_can_be_read_and_agrees_with_itself(text):
    assert objection(marks_of(text), marks_of(text), ALL_GUARDS) is None


def test_only_the_guards_that_are_named_are_asked():
    one, other = marks_of("the capital of Germany"), marks_of("the capital of France")
    assert objection(one, other, ("numbers", "dates")) is None
    assert objection(one, other, ("numbers", "words")) == "words"
