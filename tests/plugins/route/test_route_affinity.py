"""The keys of sessions and prompts: the same for every turn of a conversation, in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tailrace.plugins.route.affinity import CONVERSATION, NONE, PREFIX, SESSION, Affinity, prompt_keys
from tailrace.proxy.body import JsonBody

SYSTEM = "You answer questions about the water mill. " * 40
FIRST = 'How deep is the tailrace, and why does everybody "race" there? \\ 水'
COMPACT, SPACED = (",", ":"), (", ", ": ")


def body(*turns: tuple[str, Any], separators=COMPACT, swapped: bool = False, **more: Any) -> bytes:
    """A chat's body; `swapped` has a message's content before its role."""
    messages = [
        {"content": content, "role": role} if swapped else {"role": role, "content": content} for role, content in turns
    ]
    return json.dumps({"model": "m", "messages": messages, **more}, separators=separators).encode()


def keys(raw: bytes, most: int = 1024) -> tuple[int, int, int]:
    return prompt_keys(raw, b'"messages"', b"", most)


LATER = (
    ("assistant", "Two metres."),
    ("user", "And the headrace?"),
    ("assistant", "Three."),
    ("user", "Thanks " * 900),
)


@pytest.mark.parametrize("first", [FIRST, "hi", "long " * 800, "ends in a backslash \\", '"', ""])
@pytest.mark.parametrize("system", ["", "Be brief.", SYSTEM, "x" * 12000])
@pytest.mark.parametrize("form", [{}, {"separators": SPACED}, {"swapped": True}, {"parts": True}])
def test_every_turn_of_a_conversation_has_the_same_keys(first: str, system: str, form: dict[str, Any]):
    parts = form.get("parts")
    form = {name: value for name, value in form.items() if name != "parts"}
    opening = [("system", system)] if system else []
    opening.append(("user", [{"type": "text", "text": first}, {"type": "text", "text": "z"}] if parts else first))
    found = set()
    for upto in range(0, len(LATER) + 1, 2):
        one, other, _ = keys(body(*opening, *LATER[:upto], **form, stream=True, temperature=0.5))
        found.add((one, other))
    assert len(found) == 1
    assert NONE not in next(iter(found))


def test_conversations_under_one_long_beginning_share_the_first_key_only():
    one, another = (keys(body(("system", SYSTEM), ("user", first))) for first in ("What is a weir?", "Who built it?"))
    assert one[0] == another[0]
    assert one[1] != another[1]


def test_conversations_under_a_short_beginning_have_keys_of_their_own():
    one, another = (keys(body(("system", "Be brief."), ("user", first))) for first in ("What?", "Who?"))
    assert one[0] != another[0]


def test_another_beginning_is_another_key():
    assert keys(body(("system", SYSTEM), ("user", "a")))[0] != keys(body(("system", "A" + SYSTEM), ("user", "a")))[0]


def test_what_a_user_quotes_is_no_message():
    quoted = 'Explain {"role":"user","content":"x"} and "messages" to me'
    plain = [("system", SYSTEM), ("user", quoted)]
    assert keys(body(*plain))[:2] == keys(body(*plain, *LATER))[:2]


def test_a_conversation_that_goes_on_is_told_from_one_that_begins():
    assert keys(body(("system", SYSTEM), ("user", FIRST)))[2] == PREFIX
    assert keys(body(("system", SYSTEM), ("user", FIRST), *LATER))[2] == CONVERSATION


@pytest.mark.parametrize("raw", [b"{}", b"[]", b"", b'{"messages"', b'{"messages":', b'{"messages":[{"role":"user"'])
def test_a_body_that_ends_anywhere_is_no_failure(raw: bytes):
    one, other, _ = keys(raw)
    assert (one == NONE) == (other == NONE)


def test_keys_are_the_same_in_every_process():
    raw = body(("system", SYSTEM), ("user", FIRST))
    code = (
        "import sys; from tailrace.plugins.route.affinity import prompt_keys;"
        "print(*prompt_keys(sys.stdin.buffer.read(), b'\"messages\"', b'', 1024)[:2])"
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code], input=raw, capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        assert tuple(map(int, run.stdout.split())) == keys(raw)[:2]
    assert keys(b'{"messages":[{"role":"user","content":"abc"}]}')[0] == 477267222


def call(raw: bytes = b"{}", route: str = "chat", fields: dict[str, Any] | None = None, **headers: str) -> Any:
    held = fields or {}
    return SimpleNamespace(
        raw=raw,
        route=SimpleNamespace(name=route),
        head={name.replace("_", "-").encode(): value.encode() for name, value in headers.items()},
        body=SimpleNamespace(has=held.__contains__, get=held.get),
    )


@pytest.mark.interpreted
class TestReading:
    affinity = Affinity(1024, ("x-session-id", "X-Conversation"), ("prompt_cache_key", "user"))

    def test_a_session_comes_before_the_prompt_which_is_the_second_choice(self):
        raw = body(("system", SYSTEM), ("user", FIRST))
        first, second, by = self.affinity.keys(call(raw, x_session_id="s-1"))
        assert by == SESSION
        assert second == self.affinity.keys(call(raw))[0]
        assert first == self.affinity.keys(call(x_session_id="s-1"))[0]
        assert first != self.affinity.keys(call(x_session_id="s-2"))[0]

    def test_a_header_counts_before_a_field_and_the_first_field_before_others(self):
        named = self.affinity.keys(call(x_session_id="s", fields={"user": "u"}))[0]
        assert named == self.affinity.keys(call(x_session_id="s"))[0]
        both = self.affinity.keys(call(fields={"user": "u", "prompt_cache_key": "k"}))[0]
        assert both == self.affinity.keys(call(fields={"prompt_cache_key": "k"}))[0]

    def test_a_header_is_found_in_whatever_case_it_is_configured(self):
        assert self.affinity.keys(call(x_conversation="c"))[2] == SESSION

    @pytest.mark.parametrize("value", ["", 7, None, ["u"], {"u": 1}])
    def test_a_field_that_is_no_text_names_no_session(self, value: Any):
        assert self.affinity.keys(call(fields={"user": value}))[0] == NONE

    def test_a_field_that_cannot_be_read_names_no_session_and_is_for_others_to_refuse(self):
        broken = JsonBody(b'{"prompt_cache_key": 1e999, "user": "u"}', 20)
        asked = call(x_other="")
        asked.body = broken
        assert self.affinity.keys(asked)[0] == self.affinity.keys(call(fields={"user": "u"}))[0]

    def test_half_a_character_is_a_session_like_any_other(self):
        assert self.affinity.keys(call(fields={"user": "\ud800"}))[2] == SESSION

    def test_short_requests_have_nothing_worth_finding(self):
        assert self.affinity.keys(call(body(("user", "hi"))))[0] == NONE

    @pytest.mark.parametrize("route", ["embeddings", "models", "pass_through", "unmatched"])
    def test_other_routes_have_no_prompt(self, route: str):
        assert self.affinity.keys(call(body(("user", "x" * 4000)), route=route))[0] == NONE

    def test_a_prefix_of_nothing_is_off(self):
        off = Affinity(0, (), ())
        assert off.keys(call(body(("user", "x" * 4000)), x_session_id="s"))[0] == NONE

    @pytest.mark.parametrize("first", [True, False])
    def test_a_system_prompt_beside_the_messages_counts(self, first: bool):
        def asked(system: str) -> int:
            fields = {"system": system, "messages": [{"role": "user", "content": "x" * 2000}]}
            order = fields if first else dict(reversed(fields.items()))
            return self.affinity.keys(call(json.dumps({"model": "m", **order}).encode(), route="messages"))[0]

        assert asked("one") != asked("two")
        assert asked("one") == asked("one")

    def test_completions_agree_in_the_beginning_of_the_prompt(self):
        def asked(prompt: str, **more: Any) -> int:
            raw = json.dumps({"model": "m", "prompt": prompt, **more}).encode()
            return self.affinity.keys(call(raw, route="completions"))[0]

        assert asked("a" * 3000) == asked("a" * 2000 + "b" * 50)
        assert asked("a" * 3000) != asked("b" * 3000)
        assert asked("a" * 500, user_bytes="x" * 600) == asked("a" * 500, other_bytes="y" * 900)
