"""The response cache where answers are found by meaning: whose they are, and for which questions."""

from __future__ import annotations

import orjson
import pytest
from fakes import chat_answer, json_answer, run, until

from cases.scene import CHAT, scene

ALIKE = (
    "[cases.tenants:Tenants, cases.witness:Witness, "
    "semantic_cache: {domains: [{name: faq, model: [m], threshold: 0.5, shadow: false}]}]"
)
FIRST, SECOND = json_answer(chat_answer("first")), json_answer(chat_answer("second"))


async def told(s, text, **headers):
    answer = await s.ask({**CHAT, "messages": [{"role": "user", "content": text}]}, headers=headers)
    plugin = s.process.service.chain.pipeline.links[2].plugin
    await until(lambda: not plugin._storing._waiting)
    said = answer.header("x-tailrace-semantic-cache").partition(";")[0]
    return said, orjson.loads(answer.body)["choices"][0]["message"]["content"]


def test_CAC_01_near_words_of_another_tenant_find_nothing():
    async def body():
        async with scene(FIRST, SECOND, plugins=ALIKE) as s:
            near = {"x-tenant": "red"}
            assert await told(s, "How do I reset my password?", **near) == ("miss", "first")
            for forged in ({"x-tenant": "blue"}, {}, {"x-tenant": "red:faq"}, {"x-tailrace-tenant": "red"}):
                assert (await told(s, "How can I reset my password?", **forged))[1] == "second"
            assert await told(s, "How can I reset my password?", **near) == ("hit", "first")

    run(body())


TRAPS = [
    ("What is the capital of Germany?", "What is the capital of France?"),
    ("Can I return it after 14 days?", "Can I return it after 41 days?"),
    ("Which foods are allowed?", "Which foods are not allowed?"),
]


@pytest.mark.parametrize(("one", "other"), TRAPS)
def test_CAC_01_near_words_are_not_the_same_question(one, other):
    async def body():
        async with scene(FIRST, SECOND, plugins=ALIKE) as s:
            assert await told(s, one) == ("miss", "first")
            assert await told(s, other) == ("miss", "second")

    run(body())
