"""Variants of a recorded session, each with a planted fault or with missing evidence, and what an audit must find.

``VARIANTS``: name -> the records, the findings, and the exit code. A finding is (name of the replica, or topic of a
finding of the store; verdict; detail and blame, or topic and key) with its number. Nothing else may be found.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from pubsub_lib.journal.rows import Row
from tests.unit.audit.oracle import Oracle
from tests.unit.audit.recorded import Rows, changed, lost, session, without

Findings = dict[tuple[str, ...], int]
Which = Callable[[Row], bool]
VARIANTS: dict[str, tuple[Callable[[], Rows], Findings, int]] = {}


def variant(findings: Findings, code: int) -> Callable[[Callable[[], Rows]], Callable[[], Rows]]:
    def keep(build: Callable[[], Rows]) -> Callable[[], Rows]:
        VARIANTS[build.__name__] = (build, findings, code)
        return build

    return keep


def findings(one: Oracle) -> Findings:
    """Everything but deliveries that are in order."""
    found: Counter[tuple[str, ...]] = Counter(
        (row.name, row.verdict, row.detail, row.blame) for row in one.delivery() if row.verdict != "ok"
    )
    found.update((row.name, row.verdict, row.topic, "") for row in one.strays())
    found.update((row.topic, row.verdict) for row in one.store())
    found.update((row.name, row.verdict, row.topic, row.key) for row in one.state())
    return dict(found)


def of(name: str, kinds: tuple[str, ...] = (), topic: str = "", position: int = 0, outcome: str = "") -> Which:
    """Records of a participant, of these kinds, a topic and a position."""

    def which(row: Row) -> bool:
        wanted = (topic in ("", row.topic), position in (0, row.position), outcome in ("", row.outcome))
        return row.name == name and (not kinds or row.kind in kinds) and all(wanted)

    return which


def first(which: Which) -> Which:
    """The first of these records."""
    found = next((row.run, row.number) for row in session() if which(row))
    return lambda row: (row.run, row.number) == found


def no_store(rows: Rows) -> Rows:
    return [row for row in rows if row.side != "store"]


LISTING = ("object", "listing")


@variant({}, 0)
def the_session_as_it_was() -> Rows:
    return list(session())


@variant({}, 0)
def the_session_without_the_store() -> Rows:
    return no_store(list(session()))


@variant({("named", "unknown", "t0", ""): 1}, 32)
def an_object_of_a_listing_is_lost() -> Rows:
    return lost(session(), first(of("named", ("object",))))


@variant({("named", "unknown", "t0", ""): 1}, 32)
def a_listing_counts_an_object_that_it_does_not_have() -> Rows:
    return without(session(), first(of("named", ("object",))))


@variant({("named", "unknown", "t0", ""): 1}, 32)
def the_end_of_a_listing_is_lost() -> Rows:
    return lost(session(), of("named", ("listing",)))


@variant({("every", "unknown", "t1", ""): 1}, 32)
def a_replica_of_everything_breaks_a_listing_off() -> Rows:
    """It has the topic: its objects are there, and the record of the end is not."""
    return without(session(), of("every", ("listing",), "t1"))


@variant({("named", "unknown", "t0", ""): 1}, 32)
def the_only_listing_of_a_replica_is_lost() -> Rows:
    return lost(session(), of("named", LISTING))


@variant({("polls", "unknown", "t1", ""): 1}, 32)
def a_replica_lists_one_of_two_topics() -> Rows:
    return without(session(), of("polls", LISTING, "t1"))


@variant({("polls", "unknown", "t1", ""): 1}, 32)
def one_of_two_listings_is_lost() -> Rows:
    return lost(session(), of("polls", LISTING, "t1"))


@variant({("every", "unknown", "t1", ""): 1}, 32)
def a_replica_of_everything_lost_one_of_two_listings() -> Rows:
    return lost(session(), of("every", LISTING, "t1"))


@variant({}, 0)
def a_replica_has_no_listing_and_recorded_what_it_held() -> Rows:
    """As of a program that ends without closing its replica: number and digest are compared."""
    return without(session(), of("named", LISTING))


@variant({}, 32)
def a_replica_recorded_nothing_of_what_it_held() -> Rows:
    return without(session(), of("named", (*LISTING, "held")))


def shorter(rows: Rows) -> Rows:
    return changed(without(rows, first(of("named", ("object",)))), of("named", ("listing",)), count=1)


@variant({("named", "missing", "t0", "k0"): 1, ("named", "diverged", "t0", ""): 1}, 4)
def a_listing_is_short_of_an_object() -> Rows:
    return shorter(list(session()))


@variant({("named", "diverged", "t0", ""): 1}, 4)
def a_listing_is_short_of_an_object_and_there_is_no_store() -> Rows:
    """The replica had recorded at the same point that it holds more objects."""
    return shorter(no_store(list(session())))


@variant({("named", "diverged", "t0", ""): 1}, 4)
def listing_and_held_contents_are_short_and_there_is_no_store() -> Rows:
    rows = shorter(no_store(list(session())))
    last = max(row.number for row in rows if of("named", ("held",))(row))
    return changed(rows, lambda row: row.name == "named" and row.number == last, count=1, digest=5)


def without_everything(rows: Rows) -> Rows:
    """The journals without the replica of everything, and without the replies to its requests."""
    asked = {row.peer for row in rows if row.name == "every" and row.kind == "ask"}
    return without([row for row in rows if row.name != "every"], lambda row: row.kind == "hello" and row.peer in asked)


GHOST = {"topic": "ghost", "uuid": "f" * 32, "service": "ghost"}
RECEIPT = of("named", ("data",), position=10)


@variant({("named", "lost", "middle", "wire"): 1, ("named", "phantom", "ghost", ""): 1}, 3)
def a_message_arrives_with_a_topic_that_nothing_names() -> Rows:
    return changed(session(), RECEIPT, topic="ghost")


@variant({("named", "lost", "middle", "wire"): 1, ("named", "unknown", "ghost", ""): 1}, 33)
def a_message_of_an_unknown_publisher_arrives_with_a_topic_that_nothing_names() -> Rows:
    """No replica follows the topic, so nothing is expected."""
    return changed(without_everything(list(session())), RECEIPT, **GHOST)


@variant({("every", "lost", "middle", "wire"): 1, ("every", "unknown", "unrecorded", ""): 1}, 33)
def a_replica_of_everything_receives_a_topic_that_nothing_names() -> Rows:
    return changed(session(), of("every", ("data",), position=10), **GHOST)


@variant({("polls", "lost", "", "polling"): 30, ("t0", "chain_broken"): 28, ("t1", "chain_broken"): 16}, 37)
def journals_of_two_databases_are_in_one_folder() -> Rows:
    """A sentence reports it: the findings need not be faults."""
    return [*session(), *session(2)]


SENT = of("s0", ("data",), position=10, outcome="sent")


@variant({("named", "unknown", "gap of a publisher", ""): 1, ("every", "unknown", "gap of a publisher", ""): 1}, 32)
def the_record_of_a_sending_is_lost() -> Rows:
    return lost(session(), SENT)


@variant(
    {
        ("named", "repaired", "", "service"): 1, ("every", "repaired", "", "service"): 1,
        ("named", "phantom", "t0", ""): 1, ("every", "phantom", "t0", ""): 1, ("t0", "unpublished"): 1,
    },
    2,
)  # fmt: skip
def a_service_sends_without_a_record() -> Rows:
    """The numbers of its records show that none is lost: it never sent what two replicas received."""
    return without(session(), SENT)


@variant({("named", "unknown", "gap of a publisher", ""): 20, ("every", "unknown", "gap of a publisher", ""): 30}, 32)
def the_service_has_no_journal() -> Rows:
    return [row for row in session() if row.side != "service"]


@variant({("named", "unknown", "unrecorded", ""): 20, ("every", "unknown", "unrecorded", ""): 30}, 32)
def neither_the_service_nor_the_store_has_a_journal() -> Rows:
    return [row for row in session() if row.side not in ("service", "store")]


@variant({}, 32)
def a_replica_has_no_record_of_its_end() -> Rows:
    """It may have been killed: it wrote nothing for longer than the silence."""
    return without(session(), of("named", ("close",)))


@variant({}, 32)
def a_service_has_no_record_of_its_end() -> Rows:
    return without(session(), of("s0", ("close",)))


@variant({("named", "wrong_value", "t0", "k0"): 1}, 4)
def the_hash_of_a_value_in_a_listing_is_another_one() -> Rows:
    return with_other_value(list(session()), first(of("named", ("object",))))


def with_other_value(rows: Rows, which: Which) -> Rows:
    """Other hashes of the values, and the same hash of the message."""
    (row,) = [each for each in rows if which(each)]
    changes = tuple(msgspec.structs.replace(each, hash=each.hash ^ 1) for each in row.changes)
    return changed(rows, which, changes=changes)
