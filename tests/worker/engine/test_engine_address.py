"""An address is nobody else's before an engine gets it."""

import socket

import pytest
from tailrace.worker.engine.address import clear
from tailrace.worker.engine.command import EngineError


def test_a_socket_file_that_an_earlier_engine_left_is_removed(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    clear(f"unix:{path}")
    assert not path.exists()
    clear(f"unix:{path}")


def test_a_socket_in_use_is_refused_and_left(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(path))
        used.listen()
        with pytest.raises(EngineError, match="another process"):
            clear(f"unix:{path}")
    assert path.exists()


def test_a_socket_whose_owner_is_stuck_is_refused_and_left(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stuck, socket.socket(socket.AF_UNIX) as first:
        stuck.bind(str(path))
        stuck.listen(0)
        first.connect(str(path))
        with pytest.raises(EngineError, match="another process"):
            clear(f"unix:{path}")
    assert path.exists()


def test_a_file_that_is_no_socket_is_refused_and_left(tmp_path):
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(EngineError, match="replace a file"):
        clear(f"unix:{path}")
    assert path.read_text() == "precious"


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_in_use_is_refused_and_a_free_one_is_not(family, host):
    with socket.socket(family) as used:
        try:
            used.bind((host, 0))
        except OSError:
            pytest.skip("no such loopback address here")
        used.listen()
        port = used.getsockname()[1]
        target = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        with pytest.raises(EngineError, match="cannot serve"):
            clear(target)
    clear(target)
