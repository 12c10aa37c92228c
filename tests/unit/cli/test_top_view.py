"""The screen of ``top``, drawn in terminals of many sizes."""

import io
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from pubsub_lib.cli.top_model import ServiceRow, TopicRow, View
from pubsub_lib.cli.top_view import TopView

EMPTY = View(0, 0.0, 0.0, 0, "", (), ())


def view(services: int, topics: int, name: str = "tenant-", error: str = "") -> View:
    return View(
        head=12345,
        written=10.25,
        received=10.0,
        holes=2,
        error=error,
        services=tuple(
            ServiceRow(f"{name}api-{n}", f"tcp://10.0.0.{n}:8866", 5.0 - n, 1.5, 0.003, n or None, n)
            for n in range(services)
        ),
        topics=tuple(TopicRow(f"{name}{n}", 1000 + n, 12345 - n, 3.25, float(n), n) for n in range(topics)),
    )


def drawn(shown: View, width: int, height: int, title: str = "sqlite:///net.db  by zmq_pubsub_driver") -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, legacy_windows=False)
    screen = TopView(shown, title, "10:12:31 UTC")
    return "".join(segment.text for segment in console.render(screen)).split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60)])
def test_view_fits_the_terminal_and_aligns_columns(width: int, height: int) -> None:
    lines = drawn(view(3, 100), width, height)
    assert len(lines) == height
    assert all(cell_len(line) <= width for line in lines)
    assert lines[0].startswith("pubsub-db top")
    assert lines[0].endswith("10:12:31 UTC")
    at = next(number for number, line in enumerate(lines) if line.startswith("topic"))
    names, rows = lines[at], [line for line in lines[at + 1 : -1] if line.strip()]
    assert rows
    # Numbers end where the names of their columns end.
    for name, numbers in {"objects": "10", "chg/s": "3.2"}.items():
        end = names.index(name) + len(name)
        assert all(row[:end].split()[-1].startswith(numbers) and row[end : end + 2] == "  " for row in rows), name
    assert lines[-1].startswith("q ends")


def test_screen_of_80_by_24() -> None:
    lines = drawn(view(2, 30), 80, 24)
    text = "\n".join(lines)
    assert "sqlite:///net.db  by zmq_pubsub_driver" in lines[0]
    assert lines[1].rstrip() == "head 12345   written 10.2/s   received 10.0/s   holes 2   topics 30"
    assert [line.split() for line in lines[4:6]] == [
        ["tenant-api-0", "tcp://10.0.0.0:8866", "5.0", "s", "1.5", "3", "ms", "0"],
        ["tenant-api-1", "tcp://10.0.0.1:8866", "4.0", "s", "1.5", "3", "ms", "1", "1"],
    ]
    assert "tenant-9 " in text
    shown = sum(line.startswith("tenant-") and "api" not in line for line in lines)
    assert shown == 15
    assert lines[-1].rstrip() == "q ends · 15 more topics; shown are those that lag, then the busiest"


def test_more_services_than_fit_are_counted() -> None:
    lines = drawn(view(50, 50), 80, 24)
    assert sum("api" in line for line in lines) == 8
    assert "42 more services" in lines[-1]


def test_view_of_an_empty_store() -> None:
    lines = drawn(EMPTY, 80, 24)
    assert lines[4].rstrip() == "none"
    assert any(line.rstrip() == "nothing was ever written" for line in lines)
    lines = drawn(msgspec.structs.replace(EMPTY, some=True), 80, 24)
    assert any(line.startswith("nothing was ever written to these topics") for line in lines)


@pytest.mark.parametrize("error", ["", "the database is unreachable"])
def test_view_of_a_store_that_was_not_read_claims_nothing(error: str) -> None:
    lines = drawn(msgspec.structs.replace(EMPTY, read=False, error=error), 80, 24)
    assert sum(line.startswith("not read yet") for line in lines) == 2
    assert not any(line.startswith(("none", "nothing")) for line in lines)


def test_view_shows_an_expired_lease_and_a_store_error() -> None:
    lines = drawn(view(6, 1, error="the database is unreachable"), 80, 24)
    assert lines[2].rstrip() == "the store cannot be read: the database is unreachable"
    assert "ended" in lines[9]


@given(
    width=st.integers(1, 250),
    height=st.integers(1, 70),
    services=st.integers(0, 40),
    topics=st.integers(0, 80),
    name=st.text(max_size=60),
)
def test_view_fits_for_any_name_and_size(width: int, height: int, services: int, topics: int, name: str) -> None:
    lines = drawn(view(services, topics, name), width, height)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert all(each.isprintable() for each in itertools.chain.from_iterable(lines))


def test_wide_title_does_not_move_the_clock() -> None:
    for title in ("sqlite:////srv/東京/net.db", "sqlite:////srv/" + 60 * "東"):
        line = drawn(EMPTY, 80, 24, title)[0]
        assert cell_len(line) == 80, line
        assert line.endswith(" 10:12:31 UTC"), line
