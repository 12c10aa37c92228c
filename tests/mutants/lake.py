"""Mistakes in the lake: results would be lost, counted twice, or a day without a result would look good."""

from _mutants.table import Mutant

FOLDER = "pubsub_lib/audit/lake/folder.py"
FOLDER_TESTS = "tests/unit/audit/lake/test_folder.py"
MERGING = "pubsub_lib/audit/lake/merging.py"
MERGING_TESTS = "tests/unit/audit/lake/test_merging.py"
APPEND = "pubsub_lib/audit/lake/append.py"
APPEND_TESTS = "tests/unit/audit/lake/test_append.py"
DAYS = "pubsub_lib/audit/lake/days.py"
DAYS_TESTS = "tests/unit/audit/lake/test_days.py"
OUTPUT = "pubsub_lib/audit/lake/output.py"
OUTPUT_TESTS = "tests/unit/audit/lake/test_output.py"
FEED = "pubsub_lib/audit/stream/feed.py"
FEED_TESTS = "tests/unit/audit/stream/test_feed.py"

MUTANTS = (
    Mutant(
        name="lake_reads_half_of_a_killed_append",
        path=FOLDER,
        before="return ready if ready.exists() else self.folder / place",
        after="return self.folder / place",
        tests=(f"{FOLDER_TESTS}::test_killed_append_leaves_all_or_nothing",),
        wrong="a reader mixes two states after a kill",
    ),
    Mutant(
        name="lake_forgets_a_complete_append",
        path=FOLDER,
        before="            if write:\n                self._recover()\n",
        after="            if write:\n                shutil.rmtree(self.folder / _READY, ignore_errors=True)\n",
        tests=(f"{FOLDER_TESTS}::test_killed_append_leaves_all_or_nothing",),
        wrong="the next append discards what was shown already",
    ),
    Mutant(
        name="lake_trusts_a_file_without_its_checksum",
        path=FOLDER,
        before='if sealed != "right":',
        after='if sealed == "unknown":',
        tests=(f"{FOLDER_TESTS}::test_each_damaged_byte_is_found",),
        wrong="changed bits become results",
    ),
    Mutant(
        name="lake_counts_a_window_twice",
        path=MERGING,
        before="_without(earlier[name], taken, replaced)",
        after="_without(earlier[name], set(), replaced)",
        tests=(f"{MERGING_TESTS}::test_later_result_replaces_the_earlier_one",),
        wrong="the same journals audited twice count twice",
    ),
    Mutant(
        name="lake_keeps_all_anomalies",
        path=MERGING,
        before='_limited(found["anomaly"]).sort_by',
        after='found["anomaly"].sort_by',
        tests=(f"{MERGING_TESTS}::test_day_keeps_the_first_anomalies_of_a_kind_and_domain",),
        wrong="a follower in trouble writes a million rows of a day again with each window",
    ),
    Mutant(
        name="lake_prefers_the_result_of_fewer_records",
        path=MERGING,
        before="(missing or no_store or not after[key]",
        after="(no_store or not after[key]",
        tests=(f"{MERGING_TESTS}::test_result_of_more_records_is_kept",),
        wrong="an audit of journals whose begin was removed replaces a whole one",
    ),
    Mutant(
        name="lake_replaces_the_result_of_an_audit_with_the_store",
        path=MERGING,
        before="(missing or no_store or not after[key]",
        after="(missing or not after[key]",
        tests=(f"{MERGING_TESTS}::test_window_of_an_audit_with_the_store_is_kept",),
        wrong="an audit without the store removes the losses of unpublished commits",
    ),
    Mutant(
        name="lake_ignores_the_begin_of_a_run",
        path=MERGING,
        before=' or have[run["run"]] > run["first"]]',
        after="]",
        tests=(f"{MERGING_TESTS}::test_result_of_more_records_is_kept",),
        wrong="an audit of journals whose begin was removed replaces a whole one",
    ),
    Mutant(
        name="lake_keeps_an_open_window",
        path=MERGING,
        before='if before[key]["closed"] and (missing',
        after="if (missing",
        tests=(f"{MERGING_TESTS}::test_open_window_is_replaced_and_replaces_no_closed_one",),
        wrong="pending deliveries stay pending",
    ),
    Mutant(
        name="lake_retention_trusts_the_clock",
        path=APPEND,
        before="newest = min(now, max([*lake.days(), *days], default=now))",
        after="newest = now",
        tests=(f"{APPEND_TESTS}::test_old_days_are_removed",),
        wrong="a clock that is ahead removes all days",
    ),
    Mutant(
        name="lake_gets_removed_days_again",
        path=FEED,
        before="self._waiting = waiting - removed",
        after="self._waiting = waiting",
        tests=(f"{FEED_TESTS}::test_windows_of_removed_days_do_not_wait_after_a_restart",),
        wrong="each restart of a follower reads the windows of all removed days again",
    ),
    Mutant(
        name="lake_hides_a_damaged_file",
        path=DAYS,
        before="incomplete = damaged or any(",
        after="incomplete = any(",
        tests=(f"{DAYS_TESTS}::test_damaged_file_is_named_and_its_day_incomplete",),
        wrong="a day whose results are missing counts as complete",
    ),
    Mutant(
        name="lake_takes_a_gap_for_a_good_day",
        path=DAYS,
        before="code = INCOMPLETE if problems or gaps or not found else 0",
        after="code = INCOMPLETE if problems or not found else 0",
        tests=(f"{DAYS_TESTS}::test_day_without_a_result_is_a_gap_and_missing_evidence",),
        wrong="audits that stopped are not noticed",
    ),
    Mutant(
        name="lake_takes_a_removed_day_for_a_gap",
        path=DAYS,
        before="day < now and not row.removed and not (",
        after="day < now and not (",
        tests=(f"{DAYS_TESTS}::test_days_that_were_removed_on_purpose_are_no_gap",),
        wrong="a lake that keeps fewer days than a report shows is never without a fault",
    ),
    Mutant(
        name="lake_takes_a_gap_for_a_removed_day",
        path=DAYS,
        before="min([about.removed_before, *(str(day) for day in there[:1])])",
        after="about.removed_before",
        tests=(f"{DAYS_TESTS}::test_gap_behind_a_day_that_is_there_was_not_removed",),
        wrong="after a wrong clock audits that stopped are not noticed",
    ),
    Mutant(
        name="lake_shows_an_unknown_day_as_good",
        path=OUTPUT,
        before='return "bad" if day.exit_code & ~INCOMPLETE else "unsure"',
        after='return "bad" if day.exit_code & ~INCOMPLETE else "good"',
        tests=(f"{OUTPUT_TESTS}::test_only_a_day_without_faults_and_with_deliveries_is_good",),
        wrong="a day without sufficient evidence is green",
    ),
)
