"""From the command line to a store: files, URL, missing parts, and where a commit is handed over."""

from pathlib import Path
from typing import Any

import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import Replica, Settings
from pubsub_lib.cli.main import main
from tests.e2e.service_host import Host
from tests.unit.cli.world import World, fill, start


def test_database_overrides_the_file_and_needs_none(small: World, tmp_path: Path, world: World) -> None:
    with world.open() as store:
        fill(store)
    found = small.run("--database", world.url, "tables", "-f", "value", "-c", "table")
    assert found.out == "lport\nswitch\n"
    alone = start("tables", "--database", world.url, "-f", "value", "-c", "table").communicate()
    assert alone == ("lport\nswitch\n", "")


def test_a_folder_of_files(small: World, tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("[pubsub]\nstore_url = sqlite:////nowhere/net.db\n")
    (tmp_path / "b.conf").write_text(f"[pubsub]\nstore_url = {small.url}\n")
    process = start("tables", "-f", "json", "--config-dir", tmp_path)
    assert process.communicate() == ("[]\n", "")


def test_without_any_configuration(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("oslo_config.cfg.find_config_files", lambda *_, **__: [])  # ignore the files of this host
    assert main(["tables"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        "pubsub-db: there is no configuration; give --config-file PATH, or --database URL\n",
    )


def test_mistyped_url_creates_no_database(small: World, tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    output = small.run("tables", "--database", f"sqlite:///{missing}")
    output.failed(4, "missing.db does not exist", "or create it by pubsub-db init")
    assert "read_only" not in output.err, "the command line has no such parameter"
    assert not missing.exists()


def test_database_without_tables_of_the_library(small: World, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    output = small.run("tables", "--database", f"sqlite:///{tmp_path}/empty.db")
    output.failed(4, "or create them by pubsub-db init")
    assert "read_only" not in output.err
    (tmp_path / "other").write_text("root:x:0:0\n" * 100)
    small.run("tables", "--database", f"sqlite:///{tmp_path}/other").failed(4, "not a SQLite database; correct the URL")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pubsub]\nstore_url = nonsense\n", "the database URL cannot be read"),
        ("[pubsub]\n", "the option 'store_url' in group [pubsub] is missing"),
        ("[pubsub]\nstore_url = sqlite:///x.db\nmax_idle_tim = 1\n", "'max_idle_tim' in group [pubsub]; did you mean"),
        ("[pubsub]\nmax_idle_time = soon\nstore_url = sqlite:///x.db\n", "the option 'max_idle_time'"),
        ("[pubsub\n", "the configuration cannot be read"),
        ("[pubsub]\nstore_url = postgresql://x@127.0.0.1:1/net\nstore_retry_attempts = 1\n", "is unreachable"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named(text: str, words: str, small: World, tmp_path: Path) -> None:
    path = tmp_path / "wrong.conf"
    path.write_text(text)
    world = World("", path)
    world.capture = small.capture
    world.run("tables").failed(4 if "unreachable" in words else 2, words)


def test_a_file_that_is_not_text_is_named(small: World, tmp_path: Path) -> None:
    path = tmp_path / "wrong.conf"
    path.write_bytes(b"[pubsub]\nstore_url = \xff\xfe\n")
    small.run("tables", "--config-file", path).failed(2, f"{str(path)!r} is not text in UTF-8")


def test_dollar_sign_in_database_url_is_kept(small: World, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/$topics.db"
    assert small.run("init", "--database", url).code == 0
    assert (tmp_path / "$topics.db").exists()


def test_a_wrong_file_in_a_folder_is_named(small: World, tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("[pubsub]\ncolour = red\n")
    small.run("tables", "--config-dir", tmp_path).failed(2, "b.conf' sets an unknown option 'colour'")


def test_a_missing_file(small: World) -> None:
    small.run("tables", "--config-file", "/nowhere/net.conf").failed(2, "/nowhere/net.conf")


LONG = longest(120.0)


def held(replica: Replica) -> dict[tuple[str, str], Any]:
    """The objects of a replica."""
    tables = ("lport", "t", "pubsub_test")
    return {(table, each.key): each.value for table in tables for each in replica.records(table)}


def handed_over(host: Host, count: float) -> bool:
    """Whether the service comes to have received this many links from workers."""
    return poll(lambda: host.metric("links_total", "handed") == count, LONG)


@pytest.mark.quick_variants(2)
def test_each_write_reaches_a_replica_and_goes_through_a_running_service(world: World, tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_text("".join(f'{{"table":"t","key":"{n}","topic":"p{n % 3}","value":{n}}}\n' for n in range(30)))
    commands: list[tuple[int, tuple[object, ...]]] = [  # with the number of links
        (1, ("add", "lport", "p1", '{"a": 1}', "--topic", "tenant-1")),
        (1, ("update", "lport", "p1", '{"b": 2}')),
        (2, ("update", "lport", "p1", '{"b": 2}', "--topic", "tenant-2")),
        (1, ("bind", "p1")),
        (6, ("load", path, "--batch", 15)),
        (1, ("send", "--keep", "--topic", "tenant-1")),
        (1, ("rm", "lport", "p1", "--yes")),
        (2, ("send", "--topic", "tenant-2")),  # created and deleted; the kept event is another object
        (4, ("clean", "--yes")),
    ]
    with Replica(world.settings) as replica:
        replica.wait_synced(LONG)
        for links, command in commands:
            if world.host is not None:
                handed = world.host.metric("links_total", "handed") + links
                followed = world.host.metric("links_total", "followed")
            output = world.run(*command)
            assert (output.code, output.err) == (0, ""), command
            replica.wait_for(world.head, LONG)
            assert held(replica) == {identity: value for identity, (_, value) in world.contents().items()}, command
            if world.host is not None:
                assert handed_over(world.host, handed), command
                assert world.host.metric("links_total", "followed") == followed, command


def test_command_publishes_itself_with_a_connect_based_driver(tmp_path: Path, small: World) -> None:
    path = tmp_path / "net.conf"
    # A replica that receives no message would poll after three minutes.
    path.write_text(
        f"[pubsub]\nstore_url = sqlite:///{tmp_path}/net.db\nservice_name = api-1\nenable_pub_sub = true\n"
        f"pub_sub_driver = memory\nmax_idle_time = 60\n[pubsub_memory]\nbus = {tmp_path}\n"
    )
    world = World(f"sqlite:///{tmp_path}/net.db", path)
    world.capture = small.capture
    world.run("init")
    with Replica(Settings.from_file(path)) as replica:
        replica.wait_synced(LONG)
        assert world.run("add", "lport", "p1", "1").err == ""
        replica.wait_for(world.head, LONG)
        assert held(replica) == {("lport", "p1"): 1}


@pytest.mark.parametrize("command", [("add", "lport", "p1", "1"), ("send",)])
def test_write_without_the_service_warns(command: tuple[str, ...], small: World, tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_text(
        f"[pubsub]\nstore_url = {small.url}\nservice_name = api-9\nenable_pub_sub = true\n"
        f"publisher_bind_address = 127.0.0.1\npublisher_multiproc_socket = {tmp_path}/socket\n"
    )
    world = World(small.url, path)
    world.capture = small.capture
    output = world.run(*command)
    assert output.code == (3 if command == ("send",) else 0)
    assert output.out != ""
    assert output.err == (
        "pubsub-db: the changes are stored, but replicas receive them later: "
        "the publisher service 'api-9' does not run (it has no live lease)\n"
    )


@pytest.mark.parametrize("command", [("add", "lport", "p2", "1"), ("send", "--format", "json")])
def test_write_after_the_service_was_killed_warns(command: tuple[str, ...], small: World, tmp_path: Path) -> None:
    path = tmp_path / "net.conf"
    path.write_text(
        f"[pubsub]\nstore_url = {small.url}\nservice_name = api-9\nenable_pub_sub = true\n"
        f"publisher_bind_address = 127.0.0.1\npublisher_multiproc_socket = {tmp_path}/hop/socket\n"
    )
    (tmp_path / "hop").mkdir(mode=0o700)
    world = World(small.url, path)
    world.capture = small.capture
    with world.open() as store:
        store.directory.register("api-9", "a" * 32, "tcp://127.0.0.1:8866", 60.0)  # its lease has not expired
        try:
            output = world.run(*command)
        finally:
            store.directory.unregister("a" * 32)
    service = "the service 'api-9'"
    messages = 2 if command[0] == "send" else 1
    assert output.err == (
        "pubsub-db: the changes are stored, but replicas receive them later: "
        f"{service} did not take all messages, {messages} were dropped; check whether it runs\n"
    )
    assert output.code == (3 if command[0] == "send" else 0)
    assert (f'"{service}, by zmq_pubsub_multiproc_driver, not notified"' in output.out) == (command[0] == "send")


def test_the_url_is_shown_as_it_was_given_without_its_passwords(bare: World) -> None:
    member = "" if bare.url.startswith("sqlite") else ("&" if "?" in bare.url else "?") + "sslpassword=s3cret"
    given, shown = bare.url + member, bare.url + member.replace("s3cret", "hidden")
    before = bare.run("status", "--database", given)
    assert before.code == 4
    assert "s3cret" not in before.err
    assert bare.run("init", "-f", "json", "--database", given).json["database"] == shown
    assert bare.run("status", "-f", "json", "--database", given).json["store"] == shown
    refused = bare.run("dropall", "--database", given)
    assert refused.code == 2
    assert f"all tables of {shown}: the input is not a terminal" in refused.err
    assert ("password of --database in the process list" in refused.err) == (member != "")


def test_error_of_an_unreachable_database_hides_the_password(small: World) -> None:
    for command in ("status", "init"):
        output = small.run(command, "--database", "postgresql://u@127.0.0.1:1/x?password=s3cret&connect_timeout=1")
        assert (output.code, output.out) == (4, "")
        assert "password=hidden" in output.err
        assert "s3cret" not in output.err
