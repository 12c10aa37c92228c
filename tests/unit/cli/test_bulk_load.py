"""Loading lines in transactions: an interrupted load can be run again, with the same result."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pubsub_lib import Store
from pubsub_lib.cli import bulk_load
from pubsub_lib.cli.bulk_load import Loaded, load, max_lines
from pubsub_lib.cli.jsonl import Reader
from pubsub_lib.command.exit_codes import FileError
from pubsub_lib.core.limits import Limits


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in lines))
    return path


def run(store: Store, path: Path, *, batch: int = 4, first: int = 1, stop_after: int | None = None) -> Loaded:
    loaded = Loaded()

    def report() -> None:
        if stop_after is not None and loaded.transactions >= stop_after:
            raise KeyboardInterrupt

    with Reader(str(path), store.limits) as reader:
        load(store, reader, loaded, batch, first, report)
    return loaded


def contents(store: Store) -> dict[str, tuple[str, Any]]:
    return {each.key: (each.topic, json.loads(each.value)) for each in store.objects()}


def line(key: str, value: Any = 1, topic: str = "p") -> dict[str, Any]:
    return {"table": "t", "key": key, "topic": topic, "value": value}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "objects.jsonl"


def test_batches(sqlite_url: str, path: Path) -> None:
    write(path, [line(str(number)) for number in range(10)])
    with Store(sqlite_url) as store:
        assert run(store, path) == Loaded(10, 10, 10, 3, 10)
        assert run(store, path) == Loaded(10, 10, 0, 0, None)
        assert len(contents(store)) == 10


def test_long_lines_make_short_batches(sqlite_url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_load, "_BATCH_BYTES", 1500)
    write(path, [line(str(number), "x" * 600) for number in range(6)])
    with Store(sqlite_url) as store:
        assert run(store, path, batch=100).transactions == 3


def test_load_of_repeated_and_moved_keys(sqlite_url: str, path: Path) -> None:
    write(path, [line("k", n, f"p{n % 3}") for n in range(9)] + [{**line("k"), "action": "delete"}, line("k", 99)])
    with Store(sqlite_url) as store:
        run(store, path, batch=2)
        assert contents(store) == {"k": ("p", 99)}


def test_the_largest_batch_always_fits_a_transaction(sqlite_url: str, path: Path) -> None:
    limits = Limits(max_transaction_changes=6)
    with Store(sqlite_url, limits=limits) as store:
        run(store, write(path, [line(str(n)) for n in range(6)]), batch=max_lines(limits))
        run(store, write(path, [line(str(n), topic="q") for n in range(6)]), batch=max_lines(limits))
        assert {topic for topic, _ in contents(store).values()} == {"q"}


@pytest.mark.parametrize("grows", [False, True])
def test_load_splits_transactions_that_are_too_large(grows: bool, sqlite_url: str, path: Path) -> None:
    """Also when values grow in their canonical form: 1e9 is stored as 1000000000.0."""
    value = "[" + ",".join(["1e9"] * 40) + "]" if grows else json.dumps("x" * 200)
    write(path, [f'{{"table":"t","key":"{n}","value":{value}}}\n' for n in range(20)] + ["\n", "{broken}\n"])
    with Store(sqlite_url, limits=Limits(max_transaction_bytes=1500)) as store:
        with pytest.raises(FileError, match=r"^line 22 of "):
            run(store, path, batch=1000)
        assert len(contents(store)) == 20


@pytest.mark.parametrize(
    ("limits", "again"),
    [(Limits(max_transaction_bytes=150), line("5", "x" * 200)), (Limits(max_transaction_changes=1), line("5", 1, "q"))],
)
def test_a_line_that_fits_no_transaction_is_named(limits: Limits, again: Any, sqlite_url: str, path: Path) -> None:
    with Store(sqlite_url, limits=limits) as store:
        run(store, write(path, [line(str(n)) for n in range(10)]), batch=1)
        write(path, [*(line(str(n), 2) for n in range(5)), again, line("6", 2)])
        with pytest.raises(FileError, match=r"^line 6 of .* it fits no transaction: .* allowed; correct or remove it$"):
            run(store, path, batch=100)
        assert [contents(store)[str(n)] for n in range(4, 7)] == [("p", 2), ("p", 1), ("p", 1)]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("{nonsense}\n", "malformed"),
        (line(""), "the key is empty"),
        (line("k", topic="x" * 300), "the topic"),
        (line("k", 2**70), "64 bits"),
        (line("k", "x" * 300_000), "at most 262144"),
    ],
)
@pytest.mark.parametrize("at", [1, 4, 5, 7])
def test_lines_before_a_broken_line_are_committed(
    broken: Any, reason: str, at: int, sqlite_url: str, path: Path
) -> None:
    lines: list[Any] = [line(str(number)) for number in range(1, 10)]
    write(path, [*lines[: at - 1], broken, *lines[at:]])
    with Store(sqlite_url) as store:
        with pytest.raises(FileError, match=rf"^line {at} of .* is broken: ") as caught:
            run(store, path)
        assert reason in str(caught.value)
        assert set(contents(store)) == {str(number) for number in range(1, at)}
        write(path, lines)
        assert run(store, path).changes == 10 - at
        assert len(contents(store)) == 9


def test_from_a_line(sqlite_url: str, path: Path) -> None:
    write(path, [line("1"), "{broken}\n", line("3"), "\n", line("4")])
    with Store(sqlite_url) as store:
        assert run(store, path, first=3) == Loaded(5, 2, 2, 1, 2)
        assert set(contents(store)) == {"3", "4"}


LINES = st.lists(
    st.one_of(
        st.builds(lambda k, v, t: line(k, v, t), st.sampled_from("abcd"), st.integers(0, 2), st.sampled_from("pq")),
        st.builds(lambda k: {"table": "t", "key": k, "action": "delete"}, st.sampled_from("abcd")),
    ),
    max_size=14,
)


@pytest.mark.long
@given(lines=LINES, batch=st.integers(1, 5), stops=st.lists(st.integers(1, 3), max_size=3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_repeated_load_completes_an_interrupted_load(
    lines: list[Any], batch: int, stops: list[int], tmp_path: Path
) -> None:
    name = tmp_path / f"{random.SystemRandom().getrandbits(64)}"
    path = write(name.with_suffix(".jsonl"), lines)
    expected: dict[str, tuple[str, Any]] = {}
    for each in lines:
        if each.get("action") == "delete":
            expected.pop(each["key"], None)
        else:
            expected[each["key"]] = (each["topic"], each["value"])
    with Store(f"sqlite:///{name}.db") as store:
        for stop in stops:
            try:
                run(store, path, batch=batch, stop_after=stop)
            except KeyboardInterrupt:
                continue
        run(store, path, batch=batch)
        assert contents(store) == expected
