"""CURVE's keys and the key files of clients."""

import logging
from pathlib import Path

import pytest
import zmq
import zmq.auth

from pubsub_lib import curve_keys
from pubsub_lib.errors import ConfigError, InvalidValueError


def test_new_pairs_differ_and_hide_the_secret() -> None:
    one, two = curve_keys.new_pair(), curve_keys.new_pair()
    assert one != two
    assert curve_keys.check_key(one.public) == one.public
    assert one.secret not in repr(one)


def test_public_key_of_a_new_pair_is_never_taken_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([(b"-" + b"a" * 39, b"b" * 40), (b"c" * 40, b"-" + b"d" * 39)])
    monkeypatch.setattr(zmq, "curve_keypair", lambda: next(made))
    assert curve_keys.new_pair() == ("c" * 40, "-" + "d" * 39)


@pytest.mark.parametrize("bad", ["", "a" * 39, "a" * 41, "~" * 40, "a" * 40 + "\n"])
def test_text_that_is_no_key_is_refused(bad: str) -> None:
    with pytest.raises(InvalidValueError, match="not a CURVE key"):
        curve_keys.check_key(bad)


def test_key_file_is_read_back_also_by_zeromq(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = curve_keys.new_pair()
    path = tmp_path / "agent.key"
    path.write_text(curve_keys.file_text("agent", pair))
    path.chmod(0o600)
    assert curve_keys.read_file(str(path)) == pair
    assert zmq.auth.load_certificate(path) == (pair.public.encode(), pair.secret.encode())
    assert caplog.messages == []


def test_key_file_that_others_can_read_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "agent.key"
    path.write_text(curve_keys.file_text("agent", curve_keys.new_pair()))
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        curve_keys.read_file(str(path))
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\xff", b'public-key = "x"', b'public-key = "' + b"a" * 40 + b'"'])
def test_file_without_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "agent.key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="pubsub-db clients add"):
        curve_keys.read_file(str(path))


def test_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read client_key_file .*agent.key"):
        curve_keys.read_file(str(tmp_path / "agent.key"))


def test_zeromq_that_cannot_use_keys_is_refused() -> None:
    curve_keys.check_zeromq((4, 3, 5), True)
    curve_keys.check_zeromq((4, 10, 0), True)
    with pytest.raises(ConfigError, match=r"4\.3\.5 or newer, and pyzmq uses 4\.3\.4"):
        curve_keys.check_zeromq((4, 3, 4), True)
    with pytest.raises(ConfigError, match=r"4\.3\.5 was built without CURVE"):
        curve_keys.check_zeromq((4, 3, 5), False)
