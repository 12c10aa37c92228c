"""More variants of the recorded session: faults of messages, of what replicas record about them, and of objects."""

from typing import Final

import msgspec

from pubsub_lib.journal.rows import Row
from tests.unit.audit import variants
from tests.unit.audit.recorded import Rows, changed, session, without
from tests.unit.audit.variants import LISTING, Which, first, no_store, of, variant

VARIANTS: Final = variants.VARIANTS
"""With those of this module."""
LAST, BEFORE = 30, 29
"""The last position, of the other topic, and the last one of the topic ``t0``."""


def received(name: str, position: int = 0) -> Which:
    """A replica's records of what it received or read of the topic ``t0``."""
    return of(name, ("data",), "t0", position)


def again(rows: Rows, which: Which, *, before: bool = False, **columns: object) -> Rows:
    """The journals with such a record once more: behind it, or before all later ones; numbers have no hole."""
    (one,) = [row for row in rows if which(row)]
    found = []
    for row in rows:
        later = row.run == one.run and (row.number >= one.number if before else row.number > one.number)
        found.append(msgspec.structs.replace(row, number=row.number + 1) if later else row)
    copy = msgspec.structs.replace(one, number=one.number if before else one.number + 1)
    return [*found, msgspec.structs.replace(copy, **columns)]


@variant({("named", "lost", "prefix", "wire"): 1}, 1)
def the_first_message_is_lost() -> Rows:
    return without(session(), received("named", 1))


@variant({("named", "lost", "middle", "wire"): 1}, 1)
def a_message_in_the_middle_is_lost() -> Rows:
    return without(session(), received("named", 10))


@variant({("named", "lost", "suffix", "wire"): 1}, 1)
def the_last_message_is_lost() -> Rows:
    return without(session(), received("named", BEFORE))


@variant({("named", "lost", "middle", "wire"): 10}, 1)
def ten_messages_in_a_row_are_lost() -> Rows:
    which = received("named")
    return without(session(), lambda row: which(row) and 8 <= row.position <= 22)


@variant({("polls", "lost", "", "polling"): 1}, 1)
def polling_does_not_read_a_commit() -> Rows:
    return without(session(), received("polls", 10))


@variant({("named", "lost", "middle", "subscriber"): 1}, 1)
def a_message_waits_for_ever() -> Rows:
    return changed(session(), received("named", 10), outcome="waiting")


@variant({("named", "lost", "middle", "subscriber"): 1}, 1)
def a_replica_drops_a_message() -> Rows:
    return changed(session(), received("named", 10), outcome="dropped")


def never_sent(*outcomes: str) -> Rows:
    """Neither the replicas nor the service, of these outcomes, have a record of a commit. Sequences are closed up."""

    def gone(row: Row) -> bool:
        of_data = row.kind == "data" and (row.topic, row.position) == ("t0", 10)
        return of_data and (row.outcome in outcomes or (row.side == "replica" and row.name != "polls"))

    rows = without(session(), gone)
    later = [row for row in rows if row.kind == "data" and row.topic == "t0" and row.sequence > 7]
    close = {(row.run, row.number) for row in later if row.name != "polls"}
    return [
        msgspec.structs.replace(row, sequence=row.sequence - 1) if (row.run, row.number) in close else row
        for row in rows
    ]


@variant(
    {("named", "lost", "", "service"): 1, ("every", "lost", "", "service"): 1, ("t0", "unpublished"): 1}, 1
)  # fmt: skip
def a_service_does_not_send_a_message() -> Rows:
    return never_sent("sent")


@variant(
    {("named", "lost", "", "writer"): 1, ("every", "lost", "", "writer"): 1, ("t0", "unpublished"): 1}, 1
)  # fmt: skip
def a_commit_never_comes_to_the_service() -> Rows:
    return never_sent("taken", "sent")


@variant({("named", "duplicate_applied", "", ""): 1}, 16)
def a_message_is_applied_twice() -> Rows:
    return again(list(session()), received("named", 10))


@variant({("named", "duplicate_dropped", "", ""): 1}, 0)
def a_message_is_received_twice_and_applied_once() -> Rows:
    return again(list(session()), received("named", 10), outcome="old")


@variant({("named", "corrupt", "wire", ""): 1}, 2)
def a_message_arrives_with_another_content() -> Rows:
    return changed(session(), received("named", 10), hash=7)


@variant({("polls", "corrupt", "polling", ""): 1}, 2)
def polling_reads_another_content() -> Rows:
    return changed(session(), received("polls", 10), hash=7)


@variant({(name, "corrupt", "hop", ""): 1 for name in ("named", "every", "polls")}, 2)
def the_changelog_has_another_content_than_everywhere() -> Rows:
    """The service committed for the writer, so its ``taken`` record is the next one."""
    return changed(session(), of("store", ("data",), "t0", 10), hash=7)


@variant({("named", "corrupt", "publisher", ""): 1, ("every", "corrupt", "publisher", ""): 1}, 2)
def the_service_sends_another_content() -> Rows:
    rows = changed(session(), of("s0", ("data",), "t0", 10, "sent"), hash=7)
    return changed(rows, lambda row: row.name in ("named", "every") and received(row.name, 10)(row), hash=7)


@variant({("named", "lost", "middle", "subscriber"): 1}, 1)
def one_message_was_old_that_the_replica_never_had() -> Rows:
    return changed(session(), received("named", 10), outcome="old")


@variant({("named", "lost", "middle", "subscriber"): 10}, 1)
def all_messages_from_the_middle_on_were_old() -> Rows:
    which = received("named")
    return changed(session(), lambda row: which(row) and row.position > 15, outcome="old")


@variant({("named", "lost", "middle", "subscriber"): 20}, 1)
def all_messages_were_old() -> Rows:
    return changed(session(), received("named"), outcome="old")


def with_a_delta(rows: Rows, name: str = "named") -> Rows:
    """After a lost message, a delta that brings nothing ends at its position."""
    rows = without(rows, received(name, 10))
    where = received(name, 11)
    end = {"kind": "sync_end", "outcome": "delta", "uuid": "", "sequence": 9, "position": 10, "changes": (), "hash": 0}
    end |= {"topic": ""} if name == "every" else {}
    rows = again(rows, where, before=True, **end)
    begin = {"kind": "sync_begin", "outcome": "", "cause": "expired", "prev_position": 8, "position": 0}
    return again(rows, lambda row: row.sequence == 9 and row.kind == "sync_end", before=True, **begin)


@variant({("named", "lost", "middle", "wire"): 1}, 1)
def a_delta_claims_a_link_that_it_does_not_have() -> Rows:
    return with_a_delta(list(session()))


@variant({("every", "lost", "middle", "wire"): 1}, 1)
def a_delta_of_everything_claims_a_link_that_it_does_not_have() -> Rows:
    return with_a_delta(list(session()), "every")


@variant({}, 32)
def a_replica_has_no_journal() -> Rows:
    return [row for row in session() if row.name != "named"]


@variant({}, 32)
def no_replica_has_a_journal() -> Rows:
    return [row for row in session() if row.side != "replica"]


@variant({}, 32)
def no_replica_has_a_journal_and_there_is_no_store() -> Rows:
    return no_store(no_replica_has_a_journal())


@variant({("named", "unknown", "gap", ""): 1}, 32)
def a_record_of_a_replica_is_lost() -> Rows:
    return [row for row in session() if not received("named", 10)(row)]


def object_of(name: str) -> Which:
    return first(of(name, ("object",)))


def with_version(which: Which, more: int) -> Rows:
    (row,) = [each for each in session() if which(each)]
    objects = tuple(msgspec.structs.replace(each, version=each.version + more) for each in row.changes)
    return changed(session(), which, changes=objects)


@variant({("named", "stale", "t0", "k0"): 1}, 4)
def a_replica_lists_an_older_version() -> Rows:
    return with_version(object_of("named"), -3)


@variant({("named", "wrong_value", "t0", "k0"): 1}, 4)
def a_replica_lists_a_version_that_never_was() -> Rows:
    return with_version(object_of("named"), 3)


@variant({(name, "zombie", "t0", "k0"): 1 for name in ("named", "every", "polls")}, 4)
def replicas_list_an_object_that_the_store_does_not_have() -> Rows:
    rows = without(session(), object_of("store"))
    return changed(rows, of("store", ("listing",), "t0"), count=1)


@variant({("every", "missing", "t1", "k2"): 1, ("every", "diverged", "t1", ""): 1}, 4)
def a_replica_of_everything_lists_no_object_of_a_topic() -> Rows:
    rows = without(session(), of("every", ("object",), "t1"))
    return changed(rows, of("every", ("listing",), "t1"), count=0)


@variant({("every", "missing", "t1", "k2"): 1}, 4)
def a_replica_of_everything_has_no_record_of_a_topic() -> Rows:
    return without(session(), of("every", (*LISTING, "held"), "t1"))
