"""``tools/bench commit-cost`` refuses hellos all the time while it measures, and reports the time of commits."""

import pytest
from _measurements import command, commit_cost

from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import TransportError


def test_commit_cost_measures_while_hellos_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_cost, "LIMIT", 60.0)  # this test does not measure the time
    status = command.run("commit-cost", ["--topics", "300", "--commits", "5", "--send-wait", "0.01"])
    printed = capsys.readouterr().out.splitlines()
    assert status == 0
    assert printed[0].startswith("topics 300, commits 5, refused hellos ")
    assert int(printed[0].rsplit(" ", 1)[1]) >= 1
    assert [line[:28].rstrip() for line in printed[1:]] == [
        "a commit, no hello is sent", "a commit, hellos are refused", "added",
    ]  # fmt: skip


def test_commit_cost_over_the_limit_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_cost, "LIMIT", -60.0)
    assert command.run("commit-cost", ["--topics", "2", "--commits", "2", "--send-wait", "0.001"]) == 1


def test_stub_refuses_only_hellos() -> None:
    stub = commit_cost.Refusing(0.0)
    asked: list[HelloRequest] = []
    stub.initialize(asked.append, lambda: None)
    hello = Envelope("a", "0" * 32, ALL, 0, (), Hello({}, {}, None, 0.0))
    stub.send_event(hello)
    stub.refuses.set()
    stub.send_event(Envelope("a", "0" * 32, "t", 1, ()))
    with pytest.raises(TransportError):
        stub.send_event(hello)
    assert stub.refused == 1
    stub.close()
    stub.ask(("t",))
    assert asked == []
