"""Mistakes in the contents and the order of a replica's journal: each would make the audit's result wrong."""

from _mutants.table import Mutant

PATH = "pubsub_lib/replica/journaling.py"
TESTS = "tests/unit/replica/test_journaling.py"

MUTANTS = (
    Mutant(
        name="journal_writes_what_waited_behind_what_came",
        path=PATH,
        before="""                if turn > written:
                    self._received(envelope, begin, outcomes)
                    self._journal.links("applied", applied[written:turn])
                    begin, outcomes = index, []
                outcomes.append("applied")
                written = turn + 1
        self._received(envelope, begin, outcomes)
        self._journal.links("applied", applied[written:])
""",
        after="""                outcomes.append("applied")
                del turns[key]
        self._received(envelope, begin, outcomes)
        self._journal.links("applied", [link for link in applied if (link.topic, link.point) in turns])
""",
        tests=(f"{TESTS}::test_applied_links_are_noted_in_the_order_in_which_they_are_applied",),
        wrong="links 2, 3, 4 of which 3 had waited stand in the journal as 2, 4, 3",
    ),
    Mutant(
        name="journal_writes_a_batch_in_the_order_of_receipts",
        path=PATH,
        before="> index for link in applied[written:turn]",
        after="> index for link in applied[:0]",
        tests=(f"{TESTS}::test_records_of_an_unordered_batch_keep_the_orders_of_receipt_and_application",),
        wrong="a message that came before another one and is applied after it is noted as applied at once",
    ),
    Mutant(
        name="journal_repeats_an_applied_link",
        path=PATH,
        before="                written = turn + 1\n",
        after="                written = turn\n",
        tests=(f"{TESTS}::test_a_waiting_link_is_noted_when_it_is_applied",),
        wrong="what was noted as applied is noted as applied again",
    ),
    Mutant(
        name="journal_numbers_the_rest_of_a_batch_from_its_begin",
        path=PATH,
        before="sequence = envelope.sequence + begin if envelope.sequence else 0",
        after="sequence = envelope.sequence",
        tests=(
            f"{TESTS}::test_records_of_an_unordered_batch_keep_the_orders_of_receipt_and_application",
            f"{TESTS}::test_applied_links_are_noted_in_the_order_in_which_they_are_applied",
        ),
        wrong="receipts behind links that had waited have the sequences of earlier messages",
    ),
    Mutant(
        name="journal_calls_a_skipped_link_old",
        path=PATH,
        before="old = _reached(message.link, known) or",
        after="old = _reached(message.link, applied[-1].point if applied else known) or",
        tests=(f"{TESTS}::test_a_skipped_link_is_not_noted_as_old",),
        wrong="a link that a broken tracker skips is noted as old, and the audit calls it settled",
    ),
    Mutant(
        name="journal_calls_old_what_waits",
        path=PATH,
        before="return self._known[chain.name]\n",
        after="return chain.known\n",
        tests=(f"{TESTS}::test_old_messages_are_determined_by_the_point_before_the_step",),
        wrong="whether a message is old is decided by what is known after it",
    ),
    Mutant(
        name="journal_notes_the_last_copy_as_applied",
        path=PATH,
        before="        if (key, message.part) not in seen:\n",
        after="        if key:\n",
        tests=(f"{TESTS}::test_the_first_copy_of_a_repeated_link_is_applied",),
        wrong="of a link that a batch holds twice the last copy is noted as applied",
    ),
    Mutant(
        name="journal_writes_what_waited_before_the_full_sync",
        path=PATH,
        before="""                self._full(number, chain, part, used=chain in replaced)
                # Links that had waited are applied to the objects that were read, so they are written after them.
                self._journal.links("applied", links)
""",
        after="""                self._journal.links("applied", links)
                self._full(number, chain, part, used=chain in replaced)
""",
        tests=(f"{TESTS}::test_a_link_that_waited_during_a_full_sync_is_noted_after_it",),
        wrong="links that a full sync sets free stand in front of the sync's end",
    ),
)
