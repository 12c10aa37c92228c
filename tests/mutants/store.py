"""Mistakes in ``pubsub_lib/store``, each caught on the database that it concerns."""

from _mutants.table import Mutant

STORE = "pubsub_lib/store"
ABSENT = "tests/unit/store/test_absent.py"
ABSENT_IN_SESSION = f"{ABSENT}::test_isolation_read_of_an_absent_object_is_guarded_in_a_session"
CHANGELOG = "tests/unit/store/test_changelog.py"
COMMITTING = "tests/unit/store/test_commit.py"
LINKS = "tests/unit/store/test_links.py"
SESSION = "tests/unit/store/test_session.py"
FOLLOWING = "tests/unit/store/test_following.py"
SNAPSHOT = "tests/unit/store/test_snapshot.py"
WRITER = "tests/unit/store/test_writer.py"
TRIP = "tests/unit/store/test_postgres_trip.py"
GROUP = "tests/unit/store/test_group_commit.py"
HOST = "tests/unit/store/test_host_commit.py"
UNPUBLISHED = "tests/unit/core/test_unpublished_links.py"
SERVER = "tests/unit/service/test_commit_server.py"
CLIENT = "tests/unit/service/test_commit_client.py"

LOST_UPDATE = f"{WRITER}::test_isolation_writer_loses_no_update_committed_between_its_read_and_write"
OVERTAKEN = f"{WRITER}::test_verbs_of_a_transaction_with_an_overtaken_read_are_rejected"
IS_IN = f"{WRITER}::test_history_is_in_finds_every_transaction_in_the_changelog"
NOT_ENDED = f"{WRITER}::test_history_is_in_waits_for_a_transaction_that_has_not_ended"
NOT_OURS = f"{COMMITTING}::test_lost_commit_is_run_again_when_another_took_its_position"
SESSION_LOST_UPDATE = f"{SESSION}::test_isolation_session_loses_no_update_committed_between_its_read_and_write"
OLD_SNAPSHOT = f"{SESSION}::test_session_with_an_old_snapshot_keeps_the_chain_intact"
ONE_STATE = f"{SNAPSHOT}::test_isolation_sync_is_one_state_despite_commits_between_its_statements"
RESTORED = f"{CHANGELOG}::test_history_delta_is_incomplete_after_restored_backup"
NOT_HELD = f"{CHANGELOG}::test_holds_no_point_of_another_history"
TRIMMED = f"{CHANGELOG}::test_holds_returns_none_for_a_trimmed_point"

READS_ONCE = """\
isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        connect_args={
            "connect_timeout": """
READS_EACH = READS_ONCE.replace('"READ COMMITTED" if writes else "REPEATABLE READ"', '"READ COMMITTED"')

LOCKS = (
    Mutant(
        name="objects_not_locked_on_postgresql",
        path=f"{STORE}/statements.py",
        before='                .with_for_update()\n                .lateral("found")',
        after='                .lateral("found")',
        tests=(f"{LOST_UPDATE}[postgresql]",),
        marker="postgresql",
        wrong="two writers merge into the same old value, and the update of one is lost",
    ),
    Mutant(
        name="objects_not_locked_on_mariadb",
        path=f"{STORE}/statements.py",
        before="return self._made(query.with_for_update())",
        after="return self._made(query)",
        tests=(f"{LOST_UPDATE}[mariadb]",),
        marker="mariadb",
        wrong="two writers merge into the same old value, and the update of one is lost",
    ),
    Mutant(
        name="locked_objects_skipped_on_postgresql",
        path=f"{STORE}/statements.py",
        before='.with_for_update()\n                .lateral("found")',
        after='.with_for_update(skip_locked=True)\n                .lateral("found")',
        tests=(f"{LOST_UPDATE}[postgresql]",),
        marker="postgresql",
        wrong="an object that another writer has locked is taken for absent",
    ),
    Mutant(
        name="heads_not_locked_in_a_users_session",
        path=f"{STORE}/statements.py",
        before='.where(self._among(topics.c.topic, "topic", count)).with_for_update()',
        after='.where(self._among(topics.c.topic, "topic", count))',
        tests=(f"{OLD_SNAPSHOT}[mariadb]",),
        marker="mariadb",
        wrong="InnoDB's REPEATABLE READ shows an old head, and the topic's chain breaks",
    ),
    Mutant(
        name="counter_not_locked_on_mariadb",
        path=f"{STORE}/statements.py",
        before="select(*counter).where(COUNTER).with_for_update()",
        after="select(*counter).where(COUNTER)",
        tests=(f"{OLD_SNAPSHOT}[mariadb]",),
        marker="mariadb",
        wrong="InnoDB's REPEATABLE READ shows an old counter, and two transactions take one position",
    ),
    Mutant(
        name="sqlite_session_not_locked_before_its_reads",
        path=f"{STORE}/writer.py",
        before="executor.run(Call(executor.made.touch_counter))",
        after="pass",
        tests=(f"{SESSION_LOST_UPDATE}[sqlite]",),
        wrong="a user's session merges into an old value, and the update of another writer is lost",
    ),
    Mutant(
        name="sqlite_writers_begin_deferred",
        path=f"{STORE}/engine.py",
        before='"BEGIN IMMEDIATE" if writes else "BEGIN"',
        after='"BEGIN"',
        tests=(f"{NOT_ENDED}[sqlite]", f"{LOST_UPDATE}[sqlite]"),
        wrong="a check for a transaction does not wait for the one that is being committed",
    ),
)

TRIPS = (
    Mutant(
        name="statement_of_a_trip_sent_alone",
        path=f"{STORE}/postgres_trip.py",
        before="            send(*arguments)",
        after="            send(*arguments)\n            self._pgconn.flush()",
        tests=(f"{TRIP}::test_each_trip_of_a_commit_is_one_send[True]",),
        marker="postgresql",
        wrong="a writer that is stopped between two statements keeps the counter's lock, and blocks all writers",
    ),
    Mutant(
        name="last_error_of_a_trip_raised",
        path=f"{STORE}/postgres_trip.py",
        before="for each in results:",
        after="for each in reversed(results):",
        tests=(f"{TRIP}::test_first_error_of_a_trip_is_raised",),
        marker="postgresql",
        wrong="a transaction that certainly failed looks like one whose connection was lost",
    ),
    Mutant(
        name="trip_prepares_where_psycopg_deallocates",
        path=f"{STORE}/postgres_trip.py",
        before="prepares = self._driver.prepare_threshold is None",
        after="prepares = True",
        tests=(f"{TRIP}::test_nothing_is_prepared_where_psycopg_prepares",),
        marker="postgresql",
        wrong="a rollback by psycopg deallocates the statements of trips, and later commits fail",
    ),
)

GROUPS = (
    Mutant(
        name="group_with_one_object_twice",
        path=f"{STORE}/group_commit.py",
        before="if fits and objects.isdisjoint(each.objects):",
        after="if fits:",
        tests=(f"{GROUP}::test_groups_are_bounded_and_have_no_object_twice",),
        wrong="two works of a group check and write one object as if each were alone, and the change of one is lost",
    ),
    Mutant(
        name="lost_commit_of_a_group_not_looked_up",
        path=f"{STORE}/group_commit.py",
        before="            attempts[:] = _failed(error, outcomes, doubt)",
        after="            attempts[:] = _failed(error, outcomes, doubt and len(outcomes) == 1)",
        tests=(f"{GROUP}::test_lost_commit_of_a_group_is_looked_up_for_each[sqlite-lost_after]",),
        wrong="works of a group whose COMMIT was lost are executed twice",
    ),
    Mutant(
        name="interrupted_thread_stays_in_the_queue",
        path=f"{STORE}/group_commit.py",
        before="self._queue = [each for each in (*again, *self._queue) if each is not mine]",
        after="self._queue = [*again, *self._queue]",
        tests=(f"{GROUP}::test_thread_interrupted_in_the_queue_blocks_no_other",),
        wrong="a thread that is interrupted while it waits blocks all others for ever",
    ),
    Mutant(
        name="error_of_one_thread_given_to_its_group",
        path=f"{STORE}/commit.py",
        before="if attempt.shared and not isinstance(attempt.error, StoreBusy | StoreUnavailable):",
        after="if False:",
        tests=(f"{GROUP}::test_an_error_of_the_database_for_one_work_leaves_the_others[sqlite]",),
        wrong="a thread gets an error about the topic of another thread",
    ),
)

HOSTS = (
    Mutant(
        name="worker_reads_on_after_the_timeout",
        path=f"{STORE}/host_commit.py",
        before="the service has closed its end\n            self._socket.shutdown(socket.SHUT_RDWR)",
        after="the service has closed its end\n            self._socket.setblocking(False)",
        tests=(f"{HOST}::test_shut_connection_shows_what_was_sent_before_and_takes_no_more",),
        wrong="a service commits a transaction that its worker has given up, and the worker commits it again",
    ),
    Mutant(
        name="worker_reads_nothing_after_the_timeout",
        path=f"{STORE}/host_commit.py",
        before="                while data := self._socket.recv(_CHUNK):\n                    feed(data)",
        after="                pass",
        tests=(f"{HOST}::test_shut_connection_shows_what_was_sent_before_and_takes_no_more",),
        wrong="a worker misses the point that the service sent before, and commits the transaction again",
    ),
    Mutant(
        name="announced_transaction_not_in_doubt",
        path=f"{STORE}/host_commit.py",
        before="    if exchange.prepared is None:\n        return None",
        after="    if True:\n        return None",
        tests=(f"{HOST}::test_connection_lost_after_the_point_leaves_a_doubt",),
        wrong="a worker whose service was killed after the COMMIT writes the transaction a second time",
    ),
    Mutant(
        name="transaction_of_a_worker_that_left_is_committed",
        path="pubsub_lib/service/commit_server.py",
        before='            if left:\n                raise _LeftError("workers of the group are gone")',
        after="            del left[:]",
        tests=(f"{SERVER}::test_worker_that_leaves_before_the_commit_is_taken_out_of_its_group[sqlite]",),
        wrong="a worker commits a transaction by itself that the service commits as well",
    ),
    Mutant(
        name="part_of_the_point_counts_as_sent",
        path="pubsub_lib/service/commit_client.py",
        before="            self.closed = True\n            return False\n        return True",
        after="            self.closed = True\n        return True",
        tests=(f"{CLIENT}::test_worker_that_shut_down_can_not_be_sent_the_point",),
        wrong="the service commits a transaction whose worker takes it for not committed",
    ),
    Mutant(
        name="service_announces_after_the_commit",
        path=f"{STORE}/group_commit.py",
        before="                    if announce is not None:\n",
        after="                    transaction.commit()\n                    if announce is not None:\n",
        tests=(f"{SERVER}::test_worker_that_leaves_before_the_commit_is_taken_out_of_its_group[sqlite]",),
        wrong="a worker whose service dies between COMMIT and announcement commits the transaction again",
    ),
    Mutant(
        name="service_does_not_publish_what_it_committed",
        path="pubsub_lib/service/commit_server.py",
        before="            self._publish(links)",
        after="            pass",
        tests=(f"{SERVER}::test_links_of_workers_that_ask_for_it_are_published_in_order[sqlite]",),
        wrong="replicas receive a transaction that its worker left to the service only after the next hello",
    ),
    Mutant(
        name="reader_passes_a_transaction_with_an_unsent_link",
        path="pubsub_lib/core/unpublished_links.py",
        before="        if left:\n            self._parts",
        after="        if left > 1:\n            self._parts",
        tests=(f"{UNPUBLISHED}::test_reader_passes_transactions_whose_links_were_all_published",),
        wrong="the service does not publish a link that a worker handed over only in part",
    ),
)

READS = (
    Mutant(
        name="absent_reads_not_looked_up_under_the_counter",
        path=f"{STORE}/executor.py",
        before="            absent.check(missing, found[len(lock) :])",
        after="            pass",
        tests=(f"{ABSENT}::test_isolation_read_of_an_absent_object_is_guarded[postgresql]",),
        marker="postgresql",
        wrong="two transactions that each found the other's object absent are both committed",
    ),
    Mutant(
        name="absent_reads_of_a_session_not_looked_up",
        path=f"{STORE}/connection_executor.py",
        before="            absent.check(missing, found[1:])",
        after="            pass",
        tests=(f"{ABSENT_IN_SESSION}[postgresql-READ COMMITTED]",),
        marker="postgresql",
        wrong="a session commits although the object that it had found absent was created",
    ),
    Mutant(
        name="absent_deletes_not_looked_up",
        path=f"{STORE}/absent.py",
        before="(deleted | reads.keys())",
        after="set(reads)",
        tests=(f"{ABSENT}::test_isolation_deleted_object_is_gone_also_when_it_was_created_meanwhile[postgresql]",),
        marker="postgresql",
        wrong="an object exists after a transaction that deleted it",
    ),
    Mutant(
        name="read_that_is_gone_meanwhile",
        path=f"{STORE}/writer.py",
        before="if (now.version if now is not None else 0) != version:",
        after="if now is not None and now.version != version:",
        tests=(f"{OVERTAKEN}[sqlite-delete]",),
        wrong="a transaction commits although the object that it had read was deleted",
    ),
    Mutant(
        name="read_of_nothing_that_is_there_meanwhile",
        path=f"{STORE}/writer.py",
        before="if (now.version if now is not None else 0) != version:",
        after="if version and (now.version if now is not None else 0) != version:",
        tests=(f"{OVERTAKEN}[sqlite-create]",),
        wrong="a transaction commits although the object that it had found absent was created",
    ),
    Mutant(
        name="sqlite_readers_without_begin",
        path=f"{STORE}/engine.py",
        before="        connection.connection.cursor().execute(begin)",
        after="        if writes:\n            connection.connection.cursor().execute(begin)",
        tests=(f"{ONE_STATE}[sqlite-full]", f"{ONE_STATE}[sqlite-delta]", f"{ONE_STATE}[sqlite-full of all]"),
        wrong="each statement of a sync sees another state of the store",
    ),
    Mutant(
        name="postgresql_readers_read_committed",
        path=f"{STORE}/engine.py",
        before=READS_ONCE + "max(",
        after=READS_EACH + "max(",
        tests=(f"{ONE_STATE}[postgresql-full]",),
        marker="postgresql",
        wrong="each statement of a sync sees another state of the store",
    ),
    Mutant(
        name="mariadb_readers_read_committed",
        path=f"{STORE}/engine.py",
        before=READS_ONCE + "math",
        after=READS_EACH + "math",
        tests=(f"{ONE_STATE}[mariadb-full]",),
        marker="mariadb",
        wrong="each statement of a sync sees another state of the store",
    ),
)

HISTORY = (
    Mutant(
        name="is_in_without_waiting",
        path=f"{STORE}/writer.py",
        before="counter.with_for_update() if lock else counter",
        after="counter",
        tests=(f"{NOT_ENDED}[postgresql]",),
        marker="postgresql",
        wrong="a transaction whose COMMIT still runs in the server is executed again",
    ),
    Mutant(
        name="committed_without_waiting",
        path=f"{STORE}/writer.py",
        before="query.with_for_update() if lock else query",
        after="query",
        tests=(f"{NOT_ENDED}[postgresql]",),
        marker="postgresql",
        wrong="a transaction whose COMMIT still runs in the server is reported as lost",
    ),
    Mutant(
        name="committed_asks_the_changelog_only",
        path=f"{STORE}/writer.py",
        before="for table in (schema.links, schema.topics)",
        after="for table in (schema.links,)",
        tests=tuple(f"{IS_IN}[sqlite-{keep}]" for keep in (0, 1, 2)),
        wrong="a transaction that is the head of a topic is reported as lost once the changelog was trimmed",
    ),
    Mutant(
        name="is_in_at_the_head_without_nonce",
        path=f"{STORE}/writer.py",
        before="    if head.nonce == point.nonce:",
        after="    if head.position == point.position:",
        tests=(f"{NOT_OURS}[sqlite-sizes0]", f"{IS_IN}[sqlite-7]"),
        wrong="a lost transaction counts as committed when another one took its position",
    ),
    Mutant(
        name="is_in_behind_the_head_without_nonce",
        path=f"{STORE}/writer.py",
        before="return bool(first.nonce == point.nonce)",
        after="return True",
        tests=(f"{NOT_OURS}[sqlite-sizes2]", f"{IS_IN}[sqlite-7]"),
        wrong="a lost transaction counts as committed when another one took its position",
    ),
    Mutant(
        name="is_in_of_a_topic_without_nonce",
        path=f"{STORE}/writer.py",
        before="where(topics.nonce == point.nonce)",
        after="where(topics.position == point.position)",
        tests=tuple(f"{IS_IN}[sqlite-{keep}]" for keep in (0, 1, 2)),
        wrong="a lost transaction counts as committed when another one took its position and was trimmed away",
    ),
    Mutant(
        name="is_in_without_the_topics",
        path=f"{STORE}/writer.py",
        before="    if connection.execute(select(func.count()).where(topics.nonce == point.nonce)).scalar_one():",
        after="    if False:",
        tests=tuple(f"{IS_IN}[sqlite-{keep}]" for keep in (0, 1, 2)),
        wrong="a transaction that is the head of a topic is not known any more once the changelog was trimmed",
    ),
    Mutant(
        name="is_in_not_at_the_head",
        path=f"{STORE}/writer.py",
        before="if head.position < point.position:",
        after="if head.position <= point.position:",
        tests=(f"{IS_IN}[sqlite-7]",),
        wrong="the newest transaction is taken for lost and executed twice",
    ),
    Mutant(
        name="is_in_not_before_the_oldest_link",
        path=f"{STORE}/writer.py",
        before="first.tx_prev_position < point.position:",
        after="first.tx_prev_position <= point.position:",
        tests=tuple(f"{IS_IN}[sqlite-{keep}]" for keep in range(1, 7)),
        wrong="the transaction that was trimmed last is taken for lost and executed twice",
    ),
    Mutant(
        name="is_in_trimmed_is_lost",
        path=f"{STORE}/writer.py",
        before="        return True\n    return None\n",
        after="        return True\n    return False\n",
        tests=(f"{IS_IN}[sqlite-1]",),
        wrong="a transaction that was trimmed is taken for lost and executed twice",
    ),
    Mutant(
        name="delta_of_a_topic_begins_at_a_position",
        path=f"{STORE}/changelog.py",
        before="got[0].prev != after:",
        after="got[0].prev.position != after.position:",
        tests=(f"{RESTORED}[sqlite]",),
        wrong="a replica that has changes of an undone history gets a delta",
    ),
    Mutant(
        name="delta_of_all_begins_at_a_position",
        path=f"{STORE}/changelog.py",
        before="got[0].tx_prev != after:",
        after="got[0].tx_prev.position != after.position:",
        tests=(f"{RESTORED}[sqlite]",),
        wrong="a replica that has changes of an undone history gets a delta",
    ),
    Mutant(
        name="delta_of_a_topic_ends_at_a_position",
        path=f"{STORE}/changelog.py",
        before="{topic: head}) if known == head.point else",
        after="{topic: head}) if known.position == head.point.position else",
        tests=(f"{RESTORED}[sqlite]",),
        wrong="a replica at the head's position in an undone history gets an empty delta",
    ),
    Mutant(
        name="delta_of_all_ends_at_a_position",
        path=f"{STORE}/changelog.py",
        before="return Delta(found, head, heads) if known == head else",
        after="return Delta(found, head, heads) if known.position == head.position else",
        tests=(f"{RESTORED}[sqlite]",),
        wrong="a replica at the head's position in an undone history gets an empty delta",
    ),
    Mutant(
        name="changelog_followed_by_position",
        path=f"{STORE}/changelog.py",
        before="(got[0].tx_prev if got else head) == begin",
        after="(got[0].tx_prev if got else head).position == begin.position",
        tests=(f"{RESTORED}[sqlite]",),
        wrong="a service continues after a restore as if no commit had been undone",
    ),
    Mutant(
        name="head_held_by_position",
        path=f"{STORE}/changelog.py",
        before="if point in (head, ZERO):",
        after="if point.position in (head.position, 0):",
        tests=(f"{NOT_HELD}[sqlite]",),
        wrong="a commit of an undone history counts as applied",
    ),
    Mutant(
        name="link_held_by_position",
        path=f"{STORE}/changelog.py",
        before="return nonce == point.nonce",
        after="return True",
        tests=(f"{NOT_HELD}[sqlite]",),
        wrong="a commit of an undone history counts as applied",
    ),
    Mutant(
        name="trimmed_last_is_not_held",
        path=f"{STORE}/changelog.py",
        before="begin is not None and begin < point.position",
        after="begin is not None and begin <= point.position",
        tests=(f"{TRIMMED}[sqlite]",),
        wrong="the commit that was trimmed last counts as undone",
    ),
)

DIGESTS = (
    Mutant(
        name="digest_keeps_what_was_replaced",
        path=f"{STORE}/links.py",
        before="            part.fingerprints -= before.fingerprint\n",
        after="",
        tests=(f"{LINKS}::test_assemble_chains_links_from_old_heads_to_new_heads",),
        wrong="the digest of a topic still counts the value that a change replaced",
    ),
)

CONTENTS = "pubsub_lib/core/contents.py"
CONTENTS_TESTS = "tests/unit/core/test_contents.py"

FULL_SYNCS = (
    Mutant(
        name="first_table_counts_as_the_only_one",
        path=f"{STORE}/object_pages.py",
        before="return low if type(low) is str and low == high else None",
        after="return low if type(low) is str else None",
        tests=("tests/unit/store/test_object_pages.py::test_full_sync_has_each_row_with_its_table",),
        wrong="a first sync shows the objects of all tables in one",
    ),
    Mutant(
        name="repeated_key_is_not_in_the_digest",
        path=CONTENTS,
        before="            total += sum(map(_fingerprint, few))\n",
        after="            total += sum(map(_fingerprint, dict(zip(keys[start:], few)).values()))\n",
        tests=(f"{CONTENTS_TESTS}::test_contents_count_a_repeated_key_twice_in_the_digest_only",),
        wrong="a key that a damaged file has twice is not detected",
    ),
    Mutant(
        name="value_of_another_type_is_shown",
        path=CONTENTS,
        before="            value = data if type(data) is bytes else content(name, key, topic, data)\n",
        after="            value = bytes(str(data), 'utf-8') if type(data) is not bytes else data\n",
        tests=(f"{CONTENTS_TESTS}::test_unknown_topics_and_other_types_of_values_are_refused",),
        wrong="a replica shows a damaged value",
    ),
    Mutant(
        name="head_and_links_of_two_snapshots",
        path=f"{STORE}/engine.py",
        before="_IN_INDEX_ORDER | _ONE_SNAPSHOT",
        after="_IN_INDEX_ORDER",
        tests=(f"{FOLLOWING}::test_isolation_the_statements_of_a_trip_see_one_snapshot",),
        marker="postgresql",
        wrong="a restore between the two statements looks like a changelog that connects",
    ),
    Mutant(
        name="reading_leaves_a_transaction_open",
        path=f"{STORE}/following.py",
        before="        self._unsent = []  # without the BEGIN\n",
        after="",
        tests=(f"{FOLLOWING}::test_a_reading_is_one_round_trip",),
        marker="postgresql",
        wrong="each reading after the first one sees the store as it was then",
    ),
    Mutant(
        name="psycopg_prepares_beside_readings",
        path=f"{STORE}/following.py",
        before="        self._driver.prepare_threshold = None\n",
        after="",
        tests=(f"{FOLLOWING}::test_statements_of_readings_stay_prepared_beside_other_reads",),
        marker="postgresql",
        wrong="the server parses and plans the statements at each reading",
    ),
    Mutant(
        name="part_of_a_transaction_is_followed",
        path=f"{STORE}/changelog.py",
        before="    return got[:first_of_last] or None\n",
        after="    return got[:first_of_last] or got\n",
        tests=(f"{CHANGELOG}::test_read_links_gives_whole_transactions_in_commit_order[sqlite]",),
        wrong="a reader that gets fewer links than a transaction has skips the others",
    ),
    Mutant(
        name="contents_are_taken_twice",
        path=CONTENTS,
        before="        tables, self._tables = self.tables, None\n",
        after="        tables = self.tables\n",
        tests=(f"{CONTENTS_TESTS}::test_contents_are_taken_once",),
        wrong="two replicas in a process change each other's objects",
    ),
)

IDENTITY = (
    Mutant(
        name="commit_does_not_give_the_stores_id",
        path=f"{STORE}/store.py",
        before="            self.store_id = commit.store_id\n",
        after="",
        tests=("tests/unit/store/test_store.py::test_store_id_follows_the_database[sqlite]",),
        wrong="a running worker of a store that was created again sends with the old id until it is restarted",
    ),
    Mutant(
        name="copied_entry_is_live",
        path=f"{STORE}/directory.py",
        before=" and service.store_id == own]",
        after="]",
        tests=("tests/unit/store/test_directory.py::test_entry_that_was_copied_with_the_database_is_not_live[sqlite]",),
        wrong="replicas of a copied database connect to the publishers of the original",
    ),
)

MUTANTS = (*LOCKS, *TRIPS, *GROUPS, *HOSTS, *READS, *HISTORY, *DIGESTS, *FULL_SYNCS, *IDENTITY)
