"""A credential shows in no printing of it or of its owner."""

import copy
import pickle

from tailrace.proxy.config import Hidden, Secret


def test_nothing_prints_it() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]} %s" % secret
    assert secret.reveal() == "hunter2"


def test_equality_is_by_content() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("ä"), Secret("ä")}) == 1


def test_it_can_be_handed_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Secret("a"))) == copy.deepcopy(Secret("a")) == Secret("a")
    assert type(pickle.loads(pickle.dumps(Hidden("a")))) is Hidden


def test_hidden_text_is_text_to_its_user() -> None:
    hidden = Hidden("hunter2")
    assert hidden == "hunter2" and f"{hidden}" == "hunter2"
    assert repr([hidden]) == "['***']"
