"""Metrics that plugins give."""

import logging

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, gateway, run, yaml_for
from scrape import Scrape

PLUGINS = "[chatty:Counting]"


def plugin_of(process):
    return process.service.chain.pipeline.links[0].plugin


def given(*yields):
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1", plugins=PLUGINS)) as process:
            plugin_of(process).yields = yields
            Scrape(process)
            return Scrape(process)

    return run(body())


@pytest.mark.parametrize(
    ("name", "labels"),
    [("plugin_failures_total", {"plugin": name}) for name in ("retry", "rescue")]
    + [("rescue_lost_total", {"why": why}) for why in ("request", "answer", "no_ids", "worker")]
    + [("retry_refused_total", {"why": why}) for why in ("retry", "hedge", "fallback")]
    + [("retry_retried_total", {"fault": kind}) for kind in ("connect_failed", "http_error")],
)
def test_what_alerts_look_at_is_shown_from_0(name, labels):
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1", plugins="[retry, rescue]")) as process:
            return Scrape(process)

    scrape = run(body())
    assert scrape.value(name, **labels) == 0
    assert '=""' not in scrape.text


def test_a_number_of_dropped_things_is_a_counter():
    async def body():
        async with Upstream(GOOD) as upstream, gateway(yaml_for(upstream, plugins="[chatty:Dropper]")) as process:
            async with RawClient(process.doors[0].shown) as client:
                for _ in range(3):
                    await client.post(PATH, CHAT)
            return Scrape(process)

    assert run(body()).value("chatty_dropper_dropped_total") == 3


def test_the_access_log_shows_what_it_dropped():
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1", plugins="[access_log]")) as process:
            return Scrape(process)

    scrape = run(body())
    assert scrape.value("access_log_dropped_total") == 0
    told = next(line for line in scrape.text.splitlines() if line.startswith("# HELP tailrace_access_log_dropped"))
    assert told.endswith(
        "What the plugin access_log had no room for or could not write, and has lost, such as log lines."
    )


def test_counters_and_gauges_with_labels():
    scrape = given(("seen_total", {"kind": "a"}, 2), ("seen_total", {"kind": "b"}, 3), ("size", {}, 4.5))
    assert scrape.value("chatty_counting_seen_total", kind="a") == 2
    assert scrape.value("chatty_counting_seen_total", kind="b") == 3
    assert scrape.value("chatty_counting_size") == 4.5
    assert "# TYPE tailrace_chatty_counting_size gauge" in scrape.text


def test_label_values_without_end_fold():
    scrape = given(*[("seen_total", {"who": str(number)}, 1) for number in range(500)])
    assert len(scrape.values_of("who")) == 65
    assert scrape.value("chatty_counting_seen_total") == 500


def test_a_counter_whose_subject_is_gone_makes_room_and_begins_anew():
    async def body():
        async with gateway(yaml_for("http://127.0.0.1:1", plugins=PLUGINS)) as process:
            plugin = plugin_of(process)
            for number in range(200):
                plugin.yields = [("seen_total", {"who": str(number)}, 5), ("seen_total", {"who": "kept"}, 5)]
                scrape = Scrape(process)
            assert {"199", "kept", "other"} <= set(scrape.values_of("who"))
            assert scrape.value("chatty_counting_seen_total") == 201 * 5, "what is gone is in the sum"
            plugin.yields = [("seen_total", {"who": "kept"}, 5)]
            Scrape(process)
            plugin.yields = [("seen_total", {"who": "kept"}, 6), ("seen_total", {"who": "199"}, 2)]
            scrape = Scrape(process)
            assert scrape.value("chatty_counting_seen_total", who="kept") == 6
            assert scrape.value("chatty_counting_seen_total", who="199") == 7
            plugin.yields = [("seen_total", {"who": "199"}, 2), ("seen_total", {"who": "199"}, 2)]
            assert Scrape(process).value("chatty_counting_seen_total", who="199") == 7

    run(body())


def test_a_counter_goes_on_over_a_reload():
    async def body():
        yaml = yaml_for("http://127.0.0.1:1", plugins=PLUGINS)
        async with gateway(yaml) as process:
            old = plugin_of(process)
            old.yields = [("seen_total", {}, 5)]
            Scrape(process)
            await process.load(decoded(yaml))
            plugin_of(process).yields = [("seen_total", {}, 1)]
            old.yields = [("seen_total", {}, 7)]
            assert Scrape(process).value("chatty_counting_seen_total") == 8
            old.yields = [("seen_total", {}, 1000)]
            return Scrape(process)

    assert run(body()).value("chatty_counting_seen_total") == 8, "a plugin without calls is asked no more"


def test_a_failing_plugin_is_counted_and_logged_once(caplog):
    with caplog.at_level(logging.ERROR, "tailrace"):
        scrape = given(("seen_total", {}, "many"))
    assert scrape.value("plugin_failures_total", plugin="chatty:Counting") >= 2
    assert [record.message for record in caplog.records] == ["plugin 'chatty:Counting' failed to give its metrics"]


@pytest.mark.parametrize(("name", "labels"), [("Seen total", {}), ("seen_total", {"a-b": "x"}), ("x" * 65, {})])
def test_a_name_that_prometheus_would_refuse_is_left_out(name, labels, caplog):
    with caplog.at_level(logging.ERROR, "tailrace"):
        scrape = given((name, labels, 1))
    assert "chatty_counting" not in scrape.text
    assert len(caplog.records) == 1
