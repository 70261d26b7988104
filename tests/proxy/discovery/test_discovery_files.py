"""Files that list workers: how they may be written, and that a faulty one changes nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tailrace.proxy.discovery.endpoint import Endpoint
from tailrace.proxy.discovery.listing import ListingError, read_in_time, read_listing
from tailrace.proxy.discovery.watched import LOOK, SETTLED, WatchedFile

ONE, TWO = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
BOTH = (Endpoint(ONE), Endpoint(TWO, 2.0, "eu"))


@pytest.mark.parametrize(
    "text",
    [
        f"- {ONE}\n- {{url: {TWO}, weight: 2, region: eu}}\n",
        f"workers:\n- url: {ONE}\n- {{url: {TWO}, weight: 2, region: eu}}\n",
        f'["{ONE}", {{"url": "{TWO}", "weight": 2, "region": "eu"}}]',
        f'[\n\t"{ONE}",\n\t{{"url": "{TWO}",\n\t"weight": 2, "region": "eu"}}\n]\n',
    ],
    ids=["yaml", "under workers", "json", "json with tabs"],
)
def test_the_forms_of_a_list(text: str, tmp_path: Path) -> None:
    file = tmp_path / "workers"
    file.write_text(text)
    assert read_listing(file) == BOTH


def test_an_empty_list_is_one_and_an_entry_without_an_address_is_none(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("[]")
    assert read_listing(file) == ()
    file.write_text(f'- {{url: "", region: eu}}\n- {{url: null}}\n- ""\n- {ONE}\n')
    assert read_listing(file) == (Endpoint(ONE),)


def test_a_worker_that_stands_twice_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("- http://U:80\n- http://u/\n- HTTP://U\n")
    assert read_listing(file) == (Endpoint("HTTP://U"),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- ftp://x\n", "w.yaml:1: [0]: 'ftp://x'"),
        (f"- {ONE}\n- {{url: {TWO}, weight: 0}}\n", "w.yaml:2: [1].weight: must be at least 0.001"),
        (f"- {{url: {ONE}, weight: 1.0e+308}}\n", "w.yaml:1: [0].weight: must be at most 1000"),
        (f"- {{url: {ONE}, wait: 2}}\n", "unknown key `wait`"),
        ("- {region: eu}\n", "missing required key `url`"),
        ("workers: []\nmore: 1\n", "a mapping with the one key 'workers'"),
        ("hello", "expected a list"),
        ("- {url: [}", "not YAML"),
        ("[" + ",".join(f'"http://h{n}"' for n in range(4097)) + "]", "4097 workers are more than the 4096"),
    ],
)
def test_what_is_no_list_says_why_and_where(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(text)
    with pytest.raises(ListingError) as raised:
        read_listing(file)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ListingError, match="cannot be read"):
        read_listing(tmp_path / "w.yaml")


def look(file: WatchedFile) -> float:
    return asyncio.run(file.look())


@pytest.mark.parametrize("fault", ["", "- ftp://x\n", None], ids=["emptied", "faulty", "removed"])
def test_the_last_good_list_stays_and_the_log_says_why_once(
    fault: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"- {ONE}\n")
    file = WatchedFile(path)
    assert look(file) == LOOK
    assert file.found == (Endpoint(ONE),)
    path.unlink() if fault is None else path.write_text(fault)
    # Whoever writes it may not be done yet.
    assert look(file) == SETTLED
    assert not caplog.records
    for _ in range(3):
        assert look(file) == LOOK
    assert file.found == (Endpoint(ONE),)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the last known ones stay" in caplog.text
    assert file.trouble
    path.write_text(f"- {TWO}\n")
    assert look(file) == LOOK
    assert (file.found, file.trouble) == ((Endpoint(TWO),), "")


def test_a_file_that_is_half_written_for_a_moment_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"- {ONE}\n")
    file = WatchedFile(path)
    look(file)
    path.write_text("- {url: ")
    assert look(file) == SETTLED
    path.write_text(f"- {TWO}\n")
    look(file)
    assert file.found == (Endpoint(TWO),)
    assert not caplog.records


def test_a_file_that_does_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"- {ONE}\n")
    file = WatchedFile(path)
    look(file)
    monkeypatch.setattr("tailrace.proxy.discovery.watched.read_listing", None)
    look(file)
    assert file.found == (Endpoint(ONE),)


def test_a_list_that_becomes_empty_on_purpose_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"- {ONE}\n")
    file = WatchedFile(path)
    look(file)
    path.write_text("[]")
    look(file)
    assert file.found == ()
    assert "lists no worker any more" in caplog.text


def no_list(path: Path, kind: str) -> None:
    """Put something in the place of the list that could keep a reader waiting, or never end."""
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_a_regular_file_is_read(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"- {ONE}\n")
    file = WatchedFile(path)
    look(file)
    no_list(path, kind)
    for _ in range(3):
        look(file)
    assert file.found == (Endpoint(ONE),)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "it is not a regular file" in caplog.text
    with pytest.raises(ListingError, match="it is not a regular file"):
        read_in_time(path)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A mount that hangs until this is set."""
    answers = threading.Event()

    def hang(*args: object, **rest: object) -> str:
        answers.wait()
        return f"- {TWO}\n"

    monkeypatch.setattr("tailrace.proxy.discovery.listing.text_of", hang)
    monkeypatch.setattr("tailrace.proxy.discovery.beside.LIMIT", 0.05)
    yield answers
    answers.set()


def test_a_mount_that_hangs_keeps_nobody_waiting(
    hanging: threading.Event, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"- {TWO}\n")
    file = WatchedFile(path)
    file.found = (Endpoint(ONE),)

    async def body() -> None:
        loop_runs = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(loop_runs.set_result, None)
        looking = asyncio.ensure_future(file.look())
        await loop_runs
        assert not looking.done()
        assert await looking == LOOK
        threads = threading.active_count()
        assert await file.look() == LOOK
        assert threading.active_count() == threads
        assert file.found == (Endpoint(ONE),)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "could not be read within" in caplog.text
        hanging.set()
        while file.trouble:
            await file.look()
        assert file.found == (Endpoint(TWO),)

    asyncio.run(body())


def test_a_mount_that_hangs_keeps_no_check_waiting(hanging: threading.Event, tmp_path: Path) -> None:
    with pytest.raises(ListingError, match="could not be read within"):
        read_in_time(tmp_path / "w.yaml")


def test_nobody_hears_of_a_file_that_nobody_waits_for_any_more(tmp_path: Path) -> None:
    complaints: list[object] = []

    async def body() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        file = WatchedFile(tmp_path / "w.yaml")
        looking = asyncio.ensure_future(file.look())
        await asyncio.sleep(0)
        looking.cancel()
        out = file._news._out
        assert out is not None
        while not out.done():
            await asyncio.sleep(0.001)
        del file, out, looking
        gc.collect()

    asyncio.run(body())
    assert not complaints
