"""`tailrace keys`: what it prints, where it finds the keys, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from keys import create, id_of, keys
from tailrace.plugins.auth.command import main
from tailrace.plugins.auth.mint import digest_of, is_intact, new_key


def test_a_key_is_shown_once_and_only_its_digest_is_kept(tmp_path, capsys):
    assert main(["create", "--state", str(tmp_path), "--tenant", "acme", "--id", "alice"]) == 0
    shown = capsys.readouterr()
    key = shown.out.strip()
    assert key.startswith("tr_alice_")
    assert key not in shown.err
    assert f"kept in {tmp_path}" in shown.err
    secret = key.rpartition("_")[2]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in stored
    assert digest_of(key.encode()) in stored
    assert secret not in keys("list", "--state", tmp_path) + keys("list", "--state", tmp_path, "--json")
    assert (tmp_path / "keys.sqlite").stat().st_mode & 0o077 == 0


def test_keys_are_long_random_and_have_check_digits():
    made = {new_key("a") for _ in range(100)}
    assert len(made) == 100
    for key in made:
        assert is_intact(key)
        assert len(key.rpartition("_")[2]) == 38
        for broken in (key[:-1], key + "0", key[:-1] + ("0" if key[-1] != "0" else "1"), key.replace("tr_a_", "tr_b_")):
            assert not is_intact(broken)


def test_the_list_says_what_each_key_may_do(tmp_path):
    create(tmp_path, "--id", "alice", "--tag", "t", "--model", "m", "--limit", "{requests: 5, per: day}")
    create(tmp_path, "--id", "bob", "--expires", "2099-01-31", tenant="other")
    keys("disable", "--state", tmp_path, "bob")
    head, alice, bob = keys("list", "--state", tmp_path).splitlines()
    assert head.split()[:5] == ["ID", "TENANT", "STATUS", "TAGS", "MODELS"]
    assert alice.split()[:5] == ["alice", "acme", "live", "t", "m"]
    assert bob.split()[:5] == ["bob", "other", "disabled", "-", "any"]
    assert "2099-01-31 00:00" in bob
    first = json.loads(keys("list", "--state", tmp_path, "--json").splitlines()[0])
    assert first["limits"] == [{"requests": 5, "per": "day"}]
    assert first["expires"] is None


def test_an_existing_key_is_taken_in_by_its_digest(tmp_path, capsys):
    digest = digest_of(b"sk-from-elsewhere").hex()
    assert keys("create", "--state", tmp_path, "--tenant", "t", "--id", "old", "--digest", digest) == ""
    assert id_of("tr_old_x") in keys("list", "--state", tmp_path)


def test_the_store_is_found_by_the_gateways_own_file(tmp_path):
    file = tmp_path / "gateway.yaml"
    file.write_text(
        f"listen: [127.0.0.1:0]\nstate: {tmp_path / 'state'}\nmodels: {{m: {{workers: [http://127.0.0.1:1]}}}}\n"
        "plugins: [tailrace.plugins.auth:Auth: {}]\n"
    )
    keys("create", "--config", file, "--tenant", "acme", "--id", "alice")
    assert (tmp_path / "state" / "keys.sqlite").exists()
    assert "alice" in keys("list", "--config", file)


REFUSED = {
    "--id a/b": "`id` must be",
    "--tenant ''": "`tenant` must be",
    "--digest abc": "64 hexadecimal digits",
    "--expires soon": "must be a time",
    "--limit {requests: many, per: day}": "whole number",
    "--limit {planets: 1}": "unknown key 'planets'",
}


@pytest.mark.parametrize(("more", "fault"), REFUSED.items())
def test_what_is_wrong_is_one_line(tmp_path, capsys, more, fault):
    name, _, value = more.partition(" ")
    value = "" if value == "''" else value
    assert main(["create", "--state", str(tmp_path), "--tenant", "acme", name, value]) == 2
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize("action", ["rotate", "revoke", "disable", "enable"])
def test_an_unknown_id_is_told(tmp_path, capsys, action):
    assert main([action, "--state", str(tmp_path), "nobody"]) == 1
    assert "no key 'nobody'" in capsys.readouterr().err


def test_a_store_that_cannot_be_used_is_told(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert main(["list", "--state", str(tmp_path / "file")]) == 1
    assert main(["list", "--database", "postgresql://a:hunter2@127.0.0.1:1/x"]) == 1
    assert main(["list", "--config", str(tmp_path / "nowhere.yaml")]) == 2
    shown = capsys.readouterr().err
    assert "hunter2" not in shown
    assert all(line for line in shown.splitlines())
    monkeypatch.setenv("TAILRACE_KEYS", "postgresql://127.0.0.1:1/x")
    assert main(["list"]) == 1


def test_without_any_place_it_is_the_default_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "here"))
    monkeypatch.delenv("TAILRACE_KEYS", raising=False)
    keys("create", "--tenant", "acme")
    assert Path(tmp_path / "here" / "keys.sqlite").exists()
