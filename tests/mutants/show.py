"""Mistakes in the reading of journals for people: records would be missing, wrong, or never end."""

from _mutants.table import Mutant

STREAMING = "pubsub_lib/journal/streaming.py"
STREAMING_TESTS = "tests/unit/journal/test_streaming.py"
SOURCE = "pubsub_lib/audit/show/source.py"
SOURCE_TESTS = "tests/unit/audit/show/test_source.py"
COMMAND = "pubsub_lib/audit/show/command.py"
COMMAND_TESTS = "tests/unit/audit/show/test_command.py"

MUTANTS = (
    Mutant(
        name="streaming_follows_a_growing_file",
        path=STREAMING,
        before="while self._at < self._until:",
        after="while self._at < self._look():",
        tests=(f"{STREAMING_TESTS}::test_reading_ends_although_the_writer_is_faster",),
        wrong="a file whose writer is faster than its reader is read without end",
    ),
    Mutant(
        name="streaming_takes_a_growing_file_for_torn",
        path=STREAMING,
        before="            if body is None and not self.damaged:\n                body = self._completed()\n",
        after="",
        tests=(f"{STREAMING_TESTS}::test_frame_that_is_being_written_is_waited_for",),
        wrong="half a record of a running writer is reported as missing",
    ),
    Mutant(
        name="streaming_looks_again_only_at_locked_files",
        path=STREAMING,
        before="            if written:\n                sleep(PAUSE)\n",
        after="            if not written:\n                return None\n            sleep(PAUSE)\n",
        tests=(f"{STREAMING_TESTS}::test_frame_completed_by_a_writer_that_then_ended_is_read",),
        wrong="the last record of a writer that ends just now is reported as missing",
    ),
    Mutant(
        name="streaming_trusts_a_length",
        path=STREAMING,
        before="        self.damaged = length > MAX_FRAME\n",
        after="",
        tests=(f"{STREAMING_TESTS}::test_length_beyond_the_maximum_is_not_read_into_memory",),
        wrong="a damaged length is taken for a record that was being written",
    ),
    Mutant(
        name="show_remembers_every_object",
        path=SOURCE,
        before="yield from with_previous(chain((row,), islice(left, TOGETHER - 1)))",
        after="yield from with_previous(chain((row,), left))",
        tests=(f"{SOURCE_TESTS}::test_memory_does_not_depend_on_the_number_of_objects",),
        wrong="the memory grows with the number of objects in a file",
    ),
    Mutant(
        name="show_hides_a_torn_tail",
        path=SOURCE,
        before="torn_problem(str(self.path), torn, self.count + self._undecodable)",
        after='""',
        tests=(f"{SOURCE_TESTS}::test_torn_tail_is_one_sentence",),
        wrong="a torn tail of an append file is not reported",
    ),
    Mutant(
        name="show_succeeds_with_problems",
        path=COMMAND,
        before="return INCOMPLETE if output.incomplete else OK",
        after="return OK",
        tests=(f"{COMMAND_TESTS}::test_problems_end_neither_the_file_nor_the_command",),
        wrong="the exit code hides that a file could not be read",
    ),
    Mutant(
        name="show_prints_control_characters_of_file_names",
        path=COMMAND,
        before="entry.report_error(PROGRAM, printable(sentence))",
        after="entry.report_error(PROGRAM, sentence)",
        tests=(f"{COMMAND_TESTS}::test_control_characters_reach_no_terminal",),
        wrong="the name of a file controls the terminal",
    ),
    Mutant(
        name="show_ignores_its_conditions",
        path=COMMAND,
        before="                if self._selection.has(row):\n                    yield source, row\n",
        after="                yield source, row\n",
        tests=(f"{COMMAND_TESTS}::test_options_select_records",),
        wrong="records that the options do not select are shown",
    ),
)
