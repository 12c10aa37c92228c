"""Mistakes in a replica's interface: before its start, for objects that do not decode, for typed tables."""

from functools import partial

from _mutants.table import Mutant

LEFT_OUT = "tests/unit/replica/test_unreadable.py"
PUBLIC = "tests/unit/test_pubsub_lib.py"
TABLES = "tests/unit/core/test_table.py"
TYPED = "tests/unit/replica/test_replica.py"
ASYNCIO = "tests/unit/replica/test_asyncio_replica.py"


def _mutant(path: str, name: str, before: str, after: str, tests: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (tests,), wrong=wrong)


ASYNCIO_REPLICA = partial(_mutant, "pubsub_lib/replica/asyncio_replica.py")
INDEX = partial(_mutant, "pubsub_lib/core/index.py")
TABLE = partial(_mutant, "pubsub_lib/core/table.py")
FAULT_LOG = partial(_mutant, "pubsub_lib/replica/fault_log.py")
REPLICA = partial(_mutant, "pubsub_lib/replica/replica.py")
STATUS = partial(_mutant, "pubsub_lib/replica/status.py")
UNREADABLE = partial(_mutant, "pubsub_lib/replica/unreadable.py")

MUTANTS = (
    INDEX(
        "index_keeps_what_was_put_right",
        "        self._failing.pop(key, None)\n",
        "",
        f"{LEFT_OUT}::test_objects_that_an_index_leaves_out_are_counted_named_and_logged_once",
        "an object that was written again is still counted as left out",
    ),
    FAULT_LOG(
        "index_is_logged_at_each_tick",
        "        self._incomplete = frozenset(failing)\n",
        "",
        f"{LEFT_OUT}::test_objects_that_an_index_leaves_out_are_counted_named_and_logged_once",
        "an index that leaves objects out is logged for as long as it does",
    ),
    FAULT_LOG(
        "index_is_logged_once_for_ever",
        "        self._incomplete = frozenset(failing)\n",
        "        self._incomplete |= frozenset(failing)\n",
        f"{LEFT_OUT}::test_an_object_that_an_index_leaves_out_later_is_logged_then",
        "an index that was complete again and fails again is not logged",
    ),
    UNREADABLE(
        "unreadable_objects_stay",
        "if _version(cache, *ident) != each.version]",
        "if _version(cache, *ident) is None]",
        f"{LEFT_OUT}::test_an_object_that_does_not_fit_its_type_is_listed_after_a_read",
        "an object that was written again is still called unreadable",
    ),
    UNREADABLE(
        "unreadable_objects_without_bound",
        "if ident in self._objects or len(self._objects) < MAX_KEPT:",
        "if True:",
        f"{LEFT_OUT}::test_the_list_of_unreadable_objects_is_bounded",
        "a table of a million old objects is kept a second time",
    ),
    UNREADABLE(
        "unreadable_table_is_logged_for_each_object",
        "            self._reported |= {found.table}\n",
        "",
        f"{LEFT_OUT}::test_iterate_raises_for_or_skips_an_unreadable_object",
        "each reading of each bad object is a line in the log",
    ),
    REPLICA(
        "iterate_skips_without_being_asked",
        "            if not skip:\n                raise\n",
        "",
        f"{LEFT_OUT}::test_iterate_raises_for_or_skips_an_unreadable_object",
        "objects are missing from an iteration that was not asked to skip any",
    ),
    REPLICA(
        "bad_values_are_not_noted",
        "            self._unreadable.note(found, error, self._engine.read)\n",
        "",
        f"{LEFT_OUT}::test_records_returns_an_unreadable_object_whose_value_raises",
        "objects that cannot be decoded are in no status and no metric",
    ),
    TABLE(
        "table_that_is_not_declared_is_empty",
        "if self.types and table not in self.types:",
        "if False:",
        f"{TYPED}::test_an_undeclared_table_is_refused_when_tables_are_declared",
        "a typing error in a table's name reads as a missing object",
    ),
    TABLE(
        "handle_of_another_type_is_taken",
        "if self.types.get(table.name) != table.type:",
        "if table.name not in self.types:",
        f"{TABLES}::test_undeclared_table_is_refused_when_others_are_declared",
        "a value is of another type than declared for the type checker",
    ),
    REPLICA(
        "reads_before_the_start_find_nothing",
        "        if not self._started:\n            raise NotStarted(NOT_STARTED)\n",
        "",
        f"{PUBLIC}::test_before_the_start",
        "a controller whose replica was never started deletes every flow",
    ),
    STATUS(
        "replica_that_was_not_started_is_ready",
        """        found.append("the replica was not started; call start(), or use it in a with statement")
""",
        "        pass\n",
        f"{PUBLIC}::test_before_the_start",
        "a replica that was never started reports that it is ready",
    ),
    ASYNCIO_REPLICA(
        "asyncio_iterate_drops_on_error",
        "iterate(table, topic=topic, on_error=on_error)",
        "iterate(table, topic=topic)",
        f"{ASYNCIO}::test_iterate_raises_for_or_skips_an_unreadable_object",
        "one unreadable object fails an iteration that was asked to skip it",
    ),
    ASYNCIO_REPLICA(
        "asyncio_on_drops_the_order",
        '"key": key, "order": order, "on_history_changed"',
        '"key": key, "on_history_changed"',
        f"{ASYNCIO}::test_on_with_an_order_delivers_in_the_order_of_tables",
        "a coroutine handler gets a port before its switch",
    ),
    ASYNCIO_REPLICA(
        "asyncio_changes_drops_the_order",
        "topic=topic, key=key, order=order)",
        "topic=topic, key=key)",
        f"{ASYNCIO}::test_changes_with_an_order_delivers_in_the_order_of_tables",
        "an iteration gets a port before its switch",
    ),
)
