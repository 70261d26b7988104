"""What can be written under `workers`, what is refused there, and what `tailrace check` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import decoded
from sidecars import KEY
from tailrace.proxy.commands.check import summary
from tailrace.proxy.config import ConfigError, render
from tailrace.proxy.configuration import load
from tailrace.proxy.discovery.carrying import counted, shortage
from tailrace.proxy.discovery.settings import WorkerEntry

BASE = f"listen: 127.0.0.1:8080\nmodels: {{m: {{pool: p}}}}\nhop_key: {KEY}\n"


def pool(workers: str, more: str = "") -> str:
    return f"{BASE}pools: {{p: {{workers: {workers}{more}}}}}\n"


ALL = (
    "[http://u, {url: 'http://v', weight: 2, region: eu}, {dns: 'http://w:8000'}, "
    "{dns: {url: 'https://x', every: 9s, keep: 1m}}, {registered: g}, {registered: {group: h, lease: 3s}}, "
    "{file: w.yaml}]"
)


def test_all_that_can_be_written_reads_the_same_when_it_is_written_back() -> None:
    settings = decoded(pool(ALL))
    assert len(settings.pools["p"].workers) == 7
    written = render(settings).replace("'***'", KEY)
    assert decoded(written).pools == settings.pools
    assert "- http://u\n" in written


def test_models_may_have_their_own() -> None:
    settings = decoded(f"listen: 127.0.0.1:8080\nhop_key: {KEY}\nmodels: {{m: {{workers: {ALL}}}}}\n")
    assert [entry.source for entry in settings.models["m"].workers][2:] == [
        "dns http://w:8000",
        "dns https://x",
        "registered g",
        "registered h",
        "file w.yaml",
    ]


@pytest.mark.parametrize(
    ("workers", "why"),
    [
        ("[{}]", "workers[0]: give exactly one of `url`, `file`, `dns` and `registered`"),
        ("[{url: 'http://u', dns: 'http://v'}]", "workers[0]: give exactly one of"),
        ("[{dns: 'http://10.0.0.1'}]", "workers[0].dns: 'http://10.0.0.1' has no name in it"),
        ("[{dns: 'unix:/x'}]", "workers[0].dns: 'unix:/x' has no name in it"),
        ("[{dns: {url: 'http://u', every: 10ms}}]", "workers[0].dns.every: must be at least 1s"),
        ("[{registered: 'a b'}]", "workers[0].registered: must be letters"),
        ("[{registered: {group: g, lease: 0}}]", "workers[0].registered.lease: must be at least 1s"),
        ("[{url: 'http://u', weight: 0}]", "workers[0].weight: must be at least 0.001"),
        ("[{url: 'http://u', weight: 1.0e+308}]", "workers[0].weight: must be at most 1000"),
        ("[{dns: 'http://u'}, {dns: {url: 'http://u', every: 9s}}]", "workers[1]: 'dns http://u' is listed twice"),
        ("[{registered: g}, {registered: g}]", "workers[1]: 'registered g' is listed twice"),
        ("[{file: a}, {file: ./a}]", "workers[1]: 'file a' is listed twice"),
        ("['http://127.0.0.1:8080']", "workers[0]: 'http://127.0.0.1:8080' is this gateway's own listener"),
    ],
)
def test_what_cannot_be_meant(workers: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        decoded(pool(workers))
    assert f"pools.p.{why}" in str(raised.value)


def test_sidecars_register_only_where_there_is_a_key() -> None:
    for where in ("pools: {p: {workers: [{registered: g}]}}", "models: {m: {workers: [{registered: g}]}}"):
        text = f"listen: 127.0.0.1:8080\n{where}\n" + ("models: {m: {pool: p}}\n" if "pools" in where else "")
        with pytest.raises(ConfigError, match="`hop_key` that they share"):
            decoded(text)


def checked(tmp_path: Path, text: str) -> str:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    return "\n".join(summary(load(file)))


def test_check_says_what_each_source_is(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("- http://a\n- http://b\n")
    told = checked(tmp_path, pool(ALL, ", peak: 100, concurrency: 50"))
    lines = [line.strip() for line in told.partition("pools\n")[2].splitlines()[:8]]
    assert lines == [
        "p (peak 100 calls, counted at 50 a worker)",
        "http://u",
        "http://v (weight 2; region eu)",
        "dns http://w:8000, looked up every 5 s, kept for 300 s when gone",
        "dns https://x, looked up every 9 s, kept for 60 s when gone",
        "sidecars that register for 'g', each for 15 s",
        "sidecars that register for 'h', each for 3 s",
        f"file {tmp_path}/w.yaml, followed as it changes (2 workers now)",
    ]


@pytest.mark.parametrize("text", [None, "- ftp://x\n", ""], ids=["missing", "faulty", "empty"])
def test_a_file_that_cannot_be_used_is_a_fault_at_its_line(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"gateway.yaml:4: pools.p.workers\[0\].file: .*w.yaml"):
        checked(tmp_path, pool("[{file: w.yaml}]"))


FOUR = "['http://a', 'http://b', 'http://c', 'http://d']"


def test_a_peak_that_the_survivors_cannot_carry_is_worth_knowing(tmp_path: Path) -> None:
    told = checked(tmp_path, pool(FOUR, ", peak: 400, concurrency: 128"))
    lack = (
        "pool 'p': without one of its 4 workers it carries 384 calls at once, counted at 128 a worker (`concurrency`), "
    )
    assert f"{lack}and 400 are expected (`peak`): 5 workers would do" in told
    assert "without one" not in checked(tmp_path, pool(FOUR, ", peak: 384, concurrency: 128"))


def test_a_peak_that_not_even_all_carry_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"pools.p.peak: 4 workers of 128 calls each .* cannot carry 513 at once: 6 can"
    ):
        decoded(pool(FOUR, ", peak: 513, concurrency: 128"))
    decoded(pool(FOUR, ", peak: 512, concurrency: 128"))


def test_who_is_found_only_later_is_not_judged_now(tmp_path: Path) -> None:
    assert "(`peak`)" not in checked(tmp_path, pool("[{registered: g}]", ", peak: 400, concurrency: 1"))
    (tmp_path / "w.yaml").write_text("- http://a\n- http://b\n")
    assert "without one of its 2 workers" in checked(tmp_path, pool("[{file: w.yaml}]", ", peak: 4, concurrency: 2"))


@pytest.mark.parametrize(
    ("count", "begins"),
    [(0, "as it is"), (1, "without its only worker it carries 0"), (2, "without one of")],
)
def test_shortages_in_words(count: int, begins: str) -> None:
    assert shortage(count, 100, 10).startswith(begins)
    assert shortage(count, None, 10) == ""


def test_counting(tmp_path: Path) -> None:
    assert counted([WorkerEntry(url="http://a"), WorkerEntry(file=tmp_path / "none")]) is None
