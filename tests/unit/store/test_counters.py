"""Named counters: unique under concurrency, independent of each other."""

import threading

from pubsub_lib.store import Store


def test_counter_numbers_are_unique_and_grow(store: Store) -> None:
    assert [store.unique_id("a") for _ in range(3)] == [1, 2, 3]
    assert store.unique_id("A") == 1


def test_counter_returns_no_number_twice_to_concurrent_threads(store: Store) -> None:
    got: list[int] = []

    def take() -> None:
        got.extend(store.unique_id("tunnel") for _ in range(8))

    threads = [threading.Thread(target=take) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 40
