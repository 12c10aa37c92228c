"""Storms and hostile peers of ``tools/chaos``, the faults that a machine lacks, and a replica with a full disk."""

from pathlib import Path

import pytest
from _chaos import striking
from _chaos.hostile import LARGE, Garbage
from _chaos.messages import StormTask
from _chaos.plan import DEFAULT, Cast
from _chaos.storm import topics_of
from chaos_app import left_out, parse

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import FrameError


@pytest.mark.parametrize(("number", "followed"), [(1, 1), (2, 2), (500, 2), (10_000, 2)])
def test_storm_has_its_number_of_topics_and_follows_some(number: int, followed: int) -> None:
    topics = topics_of(StormTask("storm-1", (), 3, number, ("topic-1", "topic-2")))
    assert len(topics) == len(set(topics)) == number
    assert len({*topics} & {"topic-1", "topic-2"}) == followed


def test_garbage_is_never_a_valid_message_or_hello_request() -> None:
    garbage = Garbage("1")
    for _ in range(2000):
        with pytest.raises(FrameError):
            codec.decode(tuple(garbage.frames(b"Dt\0")))
        subscription = garbage.subscription()
        if subscription.startswith(b"H"):
            with pytest.raises(FrameError):
                codec.read_hello_request(subscription)
    assert Limits().max_frame_bytes < LARGE


def test_garbage_comes_from_its_seed() -> None:
    def some(seed: str) -> list[bytes]:
        garbage = Garbage(seed)
        return [garbage.raw() for _ in range(20)]

    assert some("1") == some("1") != some("2")


def test_kinds_that_the_machine_lacks_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_chaos.striking.shutil.which", lambda _name: None)
    found = striking.missing(None)
    assert found == {
        "files": "prlimit is not installed; install the package util-linux",
        "clock": "libfaketime is not installed; install the package libfaketime",
    }
    monkeypatch.undo()
    assert "clock" not in striking.missing(Path("/lib/libfaketime.so.1"))


def test_only_chosen_kinds_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_app.missing", lambda _faketime: {"clock": "no clock"})
    assert parse([]).only == DEFAULT
    found = left_out(parse([]), Cast(server=False))
    assert found == dict.fromkeys(("cut_database", "commit"), "needs a database server")
    chosen = parse(["--only", "kill,clock", "--no-audit"])
    assert left_out(chosen, Cast(server=True)) == {"clock": "no clock"}
    assert left_out(parse(["--only", "kill"]), Cast(server=False)) == {}
