"""Publishers of other stores (rule 15)."""

import pytest

from pubsub_lib.core.foreign_stores import MAX_KEPT, ForeignPublisher, ForeignStores
from pubsub_lib.core.model import NO_STORE
from tests.unit.core.builders import STORE, UUID, History, envelope

OTHER = bytes(16)
LINK = History().one()


def test_rule_15_another_stores_messages_are_excluded_after_the_first_reading() -> None:
    stores = ForeignStores()
    assert not stores.excludes(envelope(LINK, store_id=OTHER))
    stores.identified(STORE)
    assert stores.excludes(envelope(LINK, store_id=OTHER))
    assert stores.excludes(envelope(LINK, store_id=NO_STORE)), "of a version without the field"


@pytest.mark.parametrize(
    ("received", "doubtful"),
    [((), False), ((STORE,), False), ((OTHER,), True), ((STORE, OTHER), True), ((NO_STORE,), True)],
)
def test_rule_15_first_reading_decides_about_earlier_messages(received: tuple[bytes, ...], doubtful: bool) -> None:
    stores = ForeignStores()
    for store_id in received:
        stores.excludes(envelope(LINK, store_id=store_id))
    assert stores.identified(STORE) is doubtful
    assert stores.identified(STORE) is False


def test_each_publisher_is_named_once_for_each_store() -> None:
    stores = ForeignStores()
    stores.identified(STORE)
    first = stores.first_message(envelope(LINK, store_id=OTHER), 7.0)
    assert first == ForeignPublisher("api-1", UUID, OTHER, STORE)
    assert stores.seen_at == 7.0
    assert stores.first_message(envelope(LINK, store_id=OTHER), 8.0) is None
    assert stores.seen_at == 7.0
    assert stores.first_message(envelope(LINK, store_id=NO_STORE), 9.0) is not None
    assert stores.first_message(envelope(LINK, store_id=OTHER, uuid="11" * 16), 9.0) is not None


def test_new_id_of_the_own_store_makes_earlier_messages_doubtful_and_names_publishers_again() -> None:
    stores = ForeignStores(OTHER)
    assert stores.first_message(envelope(LINK), 1.0) is not None
    assert stores.identified(STORE)
    assert stores.first_message(envelope(LINK, store_id=OTHER), 2.0) is not None


def test_number_of_named_publishers_is_bounded() -> None:
    stores = ForeignStores(STORE)
    named = [stores.first_message(envelope(LINK, uuid=f"{n:032x}", store_id=OTHER), 0.0) for n in range(MAX_KEPT + 5)]
    assert named[-5:] == [None] * 5
    assert None not in named[:MAX_KEPT]
