"""The database of a tool: its name or URL is checked, and a private one ends with its block."""

import argparse
from pathlib import Path

import _databases
import pytest
from _databases import choice, database, shown

from pubsub_lib import Store


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "mariadb", "postgresql://user@host/name"])
def test_names_and_urls_are_choices(name: str) -> None:
    assert choice(name) == name


def test_another_word_is_no_choice() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'oracle' is neither sqlite, postgresql, mariadb nor a URL"):
        choice("oracle")


def test_sqlite_is_a_file_of_the_folder(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as url, Store(url) as store:
        assert store.topics() == {}
    assert [each.suffix for each in tmp_path.iterdir()] == [".sqlite"]


def test_a_url_is_used_and_not_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db?password=secret"
    with database(url, tmp_path) as given:
        assert given == url
    assert (shown(url), shown("mariadb")) == ("by URL", "mariadb")


def test_a_private_server_is_stopped_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Server:
        def __enter__(self) -> "Server":
            events.append("started")
            return self

        def __exit__(self, *_: object) -> None:
            events.append("stopped")

        def create_database(self) -> str:
            return "mariadb://private"

    monkeypatch.setattr(_databases, "SERVERS", {"mariadb": Server})
    with pytest.raises(ZeroDivisionError), database("mariadb", tmp_path) as url:
        assert (url, events) == ("mariadb://private", ["started"])
        raise ZeroDivisionError
    assert events == ["started", "stopped"]
