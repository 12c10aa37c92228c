"""``pubsub-db status``."""

import re

import pytest
from _processes import free_port

from pubsub_lib import Timing
from pubsub_lib.cli.commands.status import lost_message, no_publisher, services
from pubsub_lib.cli.listener import Answer
from pubsub_lib.core.envelope import Hello
from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import SECONDS
from pubsub_lib.core.timing import lost_message_bound, no_publisher_bound
from pubsub_lib.store import Service
from tests.unit.cli.commands.test_publishers import end_leases
from tests.unit.cli.commands.test_verify import following
from tests.unit.cli.world import World, fill
from tests.unit.replica.test_inspection_routes import LIAR, quarantine
from tests.unit.sync.some_agents import agent, announcement
from tests.unit.sync.test_agents_server import Served


def test_status_in_json(world: World) -> None:
    with world.open() as store:
        fill(store)
        with store.transaction(origin="api-1") as tx:
            tx.set("lport", "mine", 1, topic="tenant-1")
        heads = store.read_heads([""])
        oldest = store.inspect.oldest()
    assert oldest is not None
    found = world.run("status", "--ask", 30, "-f", "json").json
    assert found["store"] == world.settings.store_url
    assert found["store_id"] == heads.store_id.hex()
    assert len(heads.store_id) == 16
    assert (found["head"], found["nonce"]) == (heads.store.position, heads.store.nonce)
    assert found["oldest_link"]["position"] == oldest.link.point.position
    assert found["oldest_link"]["seconds_ago"] >= 0
    topics = {each["topic"]: each for each in found["topics"]}
    assert topics["tenant-1"] == {"topic": "tenant-1", "objects": 3, "head": heads.store.position}
    live = [each for each in found["services"] if each["lease_left"] > 0]
    assert len(live) == int(world.host is not None)
    for each in live:
        assert each["service"] == "api-1"
        assert 0 <= each["answered_in"] < 30
        assert each["lag"] >= 0
        # The service's reading may be a second old.
        assert each["asked"] is True
        assert (each["last_published"] == heads.store.position) is (each["lag"] == 0)
    timing = world.settings.timing
    assert found["lost_message_bound"]["at_most"] == lost_message_bound(timing, timing.sync_timeout)
    assert found["no_publisher_bound"]["at_most"] == no_publisher_bound(timing, timing.sync_timeout)


def test_a_table_for_people(world: World) -> None:
    with world.open() as store:
        fill(store)
        head = store.read_heads([]).store.position
    output = world.run("status", "--ask", 30)
    assert (output.code, output.err) == (0, "")
    assert f"| head               | {head} " in output.out
    assert f"tenant-1: 2 objects, head {head}" in output.out
    idle = world.settings.timing.max_idle_time
    assert f"{idle:g} + 1 + 1 + " in output.out
    assert (("api-1: lease" in output.out) and (", lag " in output.out)) is (world.host is not None)


def test_nothing_was_ever_written(fresh: World) -> None:
    found = fresh.run("status", "-f", "json").json
    assert (found["head"], found["oldest_link"], found["services"], found["topics"]) == (0, None, [], [])
    assert "| services           | none " in fresh.run("status").out


def test_services_that_do_not_answer(small: World) -> None:
    with small.open() as store:
        store.directory.register("ended", "u1", "tcp://127.0.0.1:1", 60)
        end_leases(small.url, "ended")
        store.directory.register("silent", "u2", "tcp://127.0.0.1:1", 60)
        store.directory.register("relay-1", "u3", "tcp://127.0.0.1:1", 60, role="relay")
    small.config.write_text(small.config.read_text() + "enable_pub_sub = true\npublishers_ips =\n")
    try:
        output = small.run("status", "--ask", 0.2, "-f", "json")
        table = small.run("status", "--ask", 0)
        asked = small.run("status", "--ask", 0.2)
        small.config.write_text(f"[pubsub]\nstore_url = {small.url}\n")
        polling = small.run("status", "--ask", 0.2)
        with small.open() as store:
            store.directory.register("silent", "u2", "", 60)
        small.config.write_text(small.config.read_text() + "enable_pub_sub = true\npublishers_ips =\n")
        hidden = small.run("status", "--ask", 0.2)
    finally:
        small.config.write_text(f"[pubsub]\nstore_url = {small.url}\n")
        with small.open() as store:
            store.directory.unregister("u1")
            store.directory.unregister("u2")
            store.directory.unregister("u3")
    services = {each["service"]: each for each in output.json["services"]}
    answers = {name: (each["answered_in"], each["last_published"], each["lag"]) for name, each in services.items()}
    assert answers == dict.fromkeys(("ended", "silent", "relay-1"), (None, None, None))
    assert services["relay-1"]["role"] == "relay"
    assert re.search(r"relay-1 \(relay\): lease \d+\.\d s left +\|", table.out), "relays are not asked"
    assert re.search(r"silent: lease \d+\.\d s left, not asked ", table.out)
    assert re.search(r"silent: lease \d+\.\d s left, did not answer ", asked.out)
    assert [name for name, each in services.items() if each["asked"]] == ["silent"]
    assert re.search(r"silent: lease \d+\.\d s left, not asked ", polling.out), "its driver carries no questions"
    assert re.search(r"silent: lease \d+\.\d s left, not asked ", hidden.out), "it has no address"
    assert "ended: lease ended 59 min ago" in table.out


def test_last_published_is_the_newest_change_that_the_service_has_read(fresh: World) -> None:
    """Also when its origin has written since then."""
    entry = Service("busy", "u1", "tcp://127.0.0.1:1", 8.0)
    with fresh.open() as store:
        begin = store.read_heads([]).store.position
        for number in range(3):
            with store.transaction(origin="busy") as tx:
                tx.set("t", "k", number)
        for behind, expected in ((0, begin + 3), (1, begin + 2), (2, begin + 1), (3, None)):
            read = begin + 3 - behind
            answers = {"u1": Answer("busy", Hello({}, {}, Point(read, 1), 0.0, "n"), 0.1)}
            published = store.inspect.last_by_origin({"busy": read})
            (found,) = services([entry], ["u1"], answers, published, begin + 3)
            assert (found["last_published"], found["lag"]) == (expected, behind)


@pytest.mark.quick_variants(1)
def test_publishers_that_a_replica_does_not_use(world: World) -> None:
    with following(world, "a") as (replica, url):
        arguments = ("status", "--ask", 0, "--replica", url)
        assert world.run(*arguments, "-f", "json").json["quarantined"] == []
        assert "| quarantined        | none " in world.run(*arguments).out
        quarantine(replica)
        (found,) = world.run(*arguments, "-f", "json").json["quarantined"]
        assert (found["service"], found["uuid"]) == LIAR
        assert 0 < found["seconds_left"] <= SECONDS
        assert re.search(rf"api-1: UUID {LIAR[1]}, not used for \d+ min ", world.run(*arguments).out)


def test_agents_are_summed_up(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    below = [agent("a", staleness=None), agent("b", staleness=7.04), agent("c", staleness=2.0)]
    before = small.config.read_text()
    small.config.write_text(f"{before}sync_url = http://127.0.0.1:{served.endpoint.port}\n")
    arguments = ("status", "--ask", 0, "--agents")
    try:
        assert small.run(*arguments, "-f", "json").json["agents"] == {
            "known": 0, "unsynced": 0, "max_staleness": None, "stalest": None,
        }  # fmt: skip
        assert "| agents             | 0 known, 0 not synced " in small.run(*arguments).out
        now = served.route._now()
        monkeypatch.setattr(served.route, "_now", lambda: now)
        served.route._registry.receive(announcement("relay", *below, interval=600.0), now)
        assert small.run(*arguments, "-f", "json").json["agents"] == {
            "known": 4, "unsynced": 1, "max_staleness": 7.0, "stalest": "b",
        }  # fmt: skip
        assert "| agents             | 4 known, 1 not synced, stalest b: 7.0 s " in small.run(*arguments).out
        now += 5.0
        assert "| agents             | 4 known, 1 not synced, stalest b: 12.0 s " in small.run(*arguments).out
    finally:
        served.endpoint.close()
        small.run(*arguments).failed(3, "cannot be reached")
        small.config.write_text(before)


@pytest.mark.parametrize("form", ["json", "yaml", "csv", "value", "table"])
def test_every_format(form: str, small: World) -> None:
    with small.open() as store:
        fill(store)
    output = small.run("status", "-f", form, "-c", "head", "-c", "topics")
    assert (output.code, output.err) == (0, "")
    assert "tenant-1" in output.out
    assert "'topic'" not in output.out  # JSON text, not Python's
    assert ('{"topic": "tenant-1", ' in output.out) is (form == "value")
    assert (": 2 objects, head" in output.out) is (form == "table")


def test_table_counts_topics_beyond_the_maximum(fresh: World) -> None:
    with fresh.open() as store, store.transaction() as tx:
        for number in range(13):
            tx.set("t", f"k{number}", 1, topic=f"t{number:02}")
    assert "and 3 more, see pubsub-db topics" in fresh.run("status").out
    assert len(fresh.run("status", "-f", "json").json["topics"]) == 13


def test_errors(small: World, tmp_path: object) -> None:
    small.run("status", "--ask", -1).failed(2, "--ask must be a number of seconds from 0, not -1.0")
    small.run("status", "--replica", "nonsense").failed(2, "is not the URL of a replica")
    small.run("status", "--replica", f"127.0.0.1:{free_port()}").failed(3, "cannot be reached")
    small.run("status", "--database", f"sqlite:///{tmp_path}/no.db").failed(4, "does not exist")


@pytest.mark.parametrize("bound", [lost_message, no_publisher])
def test_the_terms_of_a_bound_add_up(bound: object) -> None:
    assert callable(bound)
    terms = dict(bound(Timing(max_idle_time=7.0, round_trip=0.25, poll_interval=3.5, sync_timeout=11.0)))
    assert terms.pop("at_most") == sum(terms.values())
