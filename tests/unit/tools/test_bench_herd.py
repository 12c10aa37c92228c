"""The parts of ``tools/bench herd`` that judge, its proxy, and a small run."""

import argparse
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from _children import Children
from _command_line import Parser
from _measurements import counting_proxy, herd
from _measurements.counting_proxy import Counts
from _measurements.herd_model import Costs
from _measurements.herd_processes import VALUE_BYTES, Use, numbers_in, value_of
from _measurements.herd_tree import Start, rotated
from _patience import longest
from _processes import poll

LONG = longest(120.0)
MIB = herd.MIB
START = Start(
    replicas=10, seconds=[1.0, 2.0, 4.0], fulls=20, failed=1, replica_processor=3.0, sent={"primary": 200},
    connections=7, allowed=8, uses=[],
)  # fmt: skip


def met(starts: list[Start], data: int = 100) -> dict[str, bool]:
    return {each.name: each.met for each in herd.judged("x", starts, data, follow=2)}


def test_bounds_are_twice_the_data_few_connections_and_one_full_sync() -> None:
    fewer = msgspec.structs.replace(START, replicas=2)
    assert met([fewer, START]) == {
        "x-start-2": True, "x-start-10": True, "x-bytes": True, "x-connections": True, "x-fulls": True, "x-use": True,
    }  # fmt: skip
    assert not met([fewer, START], data=99)["x-bytes"]
    more = msgspec.structs.replace(fewer, connections=9)
    assert not met([more, START])["x-connections"]
    twice = msgspec.structs.replace(START, fulls=21)
    assert not met([fewer, twice])["x-fulls"]


def use(name: str, rss: float) -> Use:
    return Use(name, int(rss * MIB), int(rss * MIB), 1.0, {"syncs full": 3.0})


@pytest.mark.parametrize(("rss", "within"), [(262.0, True), (262.1, False)])
def test_memory_is_judged_against_the_cached_objects_and_an_empty_relay(rss: float, within: bool) -> None:
    full = [use("api-1", 900.0), use("upper-0", 80.0), use("lower-0", rss)]
    finding = herd.memory([use("upper-0", 100.0)], full, 100 * MIB)
    assert finding.met is within
    assert finding.figures["constant_bytes"] == 100 * MIB + herd.ALLOWANCE


def start_of(replicas: int, upper: float, lower: float, sent: float, used: float) -> Start:
    answers = {"sync_channel answered": 2.0, "sync_channel bytes": sent}
    uses = [
        Use("api-1", 1, 1, 9.0, {}), Use("upper-0", 1, 1, upper, {**answers, "sync_channel bytes": 60.0}),
        Use("lower-0", 1, 1, lower, answers),
    ]  # fmt: skip
    return msgspec.structs.replace(START, replicas=replicas, replica_processor=used, uses=uses)


def test_costs_of_a_replica_are_those_that_more_replicas_added() -> None:
    empty, fewer, last = start_of(0, 1, 1, 0, 0), start_of(2, 3, 1.5, 100, 5), start_of(12, 3, 2.5, 700, 30)
    assert herd.costs_of(empty, [fewer, last]) == Costs(
        boot=1.0, read=2.0, follow=0.5, answer=0.1, apply=2.5, whole_bytes=30.0, answer_bytes=60.0
    )


def test_numbers_of_syncs_are_read_from_metrics() -> None:
    text = (
        '# HELP x\npubsub_service_syncs_total{what="full"} 4.0\npubsub_service_sync_channel_total{what="busy"} 1.0\n'
        'pubsub_service_sending_total{what="sent"} 9.0\n'
    )
    assert numbers_in(text) == {"syncs full": 4.0, "sync_channel busy": 1.0}


def test_values_have_the_stated_size_and_differ() -> None:
    values = [msgspec.json.encode(value_of(number)) for number in (0, 1, 99_999, 7_000_000)]
    assert [len(each) for each in values] == [VALUE_BYTES] * 4
    assert len(set(values)) == 4


def test_children_begin_with_different_parents() -> None:
    assert [rotated("abc", number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


@contextmanager
def echo() -> Iterator[int]:
    """The port of a server that sends each byte back three times."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(peer,), daemon=True).start()

        def answer(peer: socket.socket) -> None:
            with peer:
                while data := peer.recv(1000):
                    peer.sendall(3 * data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(LONG)


def test_proxy_counts_the_bytes_that_come_back_and_the_connections() -> None:
    counts = Counts()
    with Children() as children, socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with echo() as target:
            children.fork(counting_proxy.serve, listener, target, counts).receive(LONG)
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(b"1234")
                assert one.recv(12, socket.MSG_WAITALL) == 3 * b"1234"
                with socket.create_connection(("127.0.0.1", port)) as two:
                    two.sendall(b"5")
                    assert two.recv(3, socket.MSG_WAITALL) == b"555"
            assert poll(lambda: counts.open == 0, LONG)
            assert (counts.sent, counts.most) == (15, 2)
            counts.begin_again()
            assert (counts.sent, counts.most) == (0, 0)


@pytest.mark.long
def test_small_herd_keeps_the_bounds_that_do_not_depend_on_its_size() -> None:
    parser = Parser(prog="herd")
    herd.options(parser)
    options: argparse.Namespace = parser.parse_args([
        "--replicas", "4", "--processes", "1", "--objects", "8000", "--topics", "2", "--follow", "1", "--uppers", "1",
        "--lowers", "1", "--instead", "relays", "--model", "40,1,2",
    ])  # fmt: skip
    found: dict[str, Any] = {each.name: each for each in herd.measure(options)}
    assert found["relays-fulls"].figures == {"fulls": 4, "topics": 4}
    assert found["relays-bytes"].met
    assert found["relays-memory"].met
    assert set(found) == {
        "relays-start-1", "relays-start-4", "relays-bytes", "relays-connections", "relays-fulls", "relays-use",
        "relays-memory", "model-check", "model-40-1-2",
    }  # fmt: skip
