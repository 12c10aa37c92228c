"""Variants of a recorded session, each with a planted fault or with missing evidence, and what an audit must find.

``VARIANTS``: name -> the records, the findings, and the exit code. A finding is (name of the replica, or topic of a
finding of the store; verdict; detail and blame, or topic and key) with its number. Nothing else may be found.
"""

from collections import Counter
from collections.abc import Callable

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
