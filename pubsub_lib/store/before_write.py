"""Hooks that a program runs on each object of a transaction before it is written (``Store.before_write``)."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pubsub_lib.arguments import check_function
from pubsub_lib.core.table import Table
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store.tables import Tables
from pubsub_lib.store.verbs import Effect


class ProposedWrite:
    """A change that a transaction is about to make to one object, as its hooks see it. Valid only during the hook's
    call.
    """

    def __init__(self, effect: Effect, tables: Tables) -> None:
        self._effect = effect
        self._tables = tables

    def __repr__(self) -> str:
        return f"ProposedWrite({self.action!r}, {self.table!r}, {self.key!r}, topic={self.topic!r})"

    @property
    def action(self) -> Literal["create", "set", "delete"]:
        """The action that replicas will report: ``update`` and ``set`` of an existing object are both a "set"."""
        if self._effect.value is None:
            return "delete"
        return "create" if self._effect.before is None else "set"

    @property
    def table(self) -> str:
        """The object's table."""
        return self._effect.table

    @property
    def key(self) -> str:
        """The object's key."""
        return self._effect.key

    @property
    def topic(self) -> str:
        """The topic that the object will be on; of a delete, the topic that it was on."""
        return self._effect.topic

    @property
    def old_topic(self) -> str | None:
        """The topic that the object is on now; None when it does not exist."""
        return None if self._effect.before is None else self._effect.before.topic

    @property
    def old_version(self) -> int:
        """The object's version now; 0 when it does not exist."""
        return 0 if self._effect.before is None else self._effect.before.version

    @property
    def old(self) -> Any:
        """The value that is stored now, as its table's type, or None. Raises InvalidValueError when the value does not
        match that type.
        """
        before = self._effect.before
        return None if before is None else self._tables.decode(self.table, before.value)

    @property
    def new(self) -> Any:
        """The whole value that will be stored, updates merged, as its table's type; None for a delete. Each reading
        gives a new copy: to change the value, return it from the hook.
        """
        value = self._effect.value
        return None if value is None else self._tables.decode(self.table, value)


BeforeWrite = Callable[[ProposedWrite], object]
"""A hook. Returns None, or the value to write in place of the proposed one. Raises to refuse the transaction."""


class WriteHooks:
    """The hooks of one store. Any thread may add and remove; a transaction uses those that it finds at its end."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.hooks: Sequence[tuple[str | None, BeforeWrite]] = ()
        """Without hooks a transaction is not reviewed. Otherwise the thread that made it reviews it."""
        self._lock = threading.Lock()

    def add(self, hook: BeforeWrite, table: str | Table[Any] | None) -> Callable[[], None]:
        """Run ``hook`` for the objects of ``table`` (None: of all tables); returns a function that removes the hook.

        Raises InvalidValueError for an invalid table name.
        """
        check_function("hook", hook, "one argument, the proposed write")
        name = None if table is None else self._tables.check(table)
        listed = (name, hook)
        with self._lock:
            self.hooks = [*self.hooks, listed]

        def remove() -> None:
            with self._lock:
                self.hooks = [other for other in self.hooks if other is not listed]

        return remove

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def review(self, effects: Sequence[Effect]) -> list[Effect]:
        """Run the hooks on each effect, in the order in which they were added; returns the effects to write.

        An effect that a hook makes equal to the stored object is left out, unless that is damaged. Raises the
        exceptions of the hooks, and InvalidValueError for a value that cannot be stored.
        """
        hooks = self.hooks
        if not hooks:
            return list(effects)
        reviewed = (self._one(effect, hooks) for effect in effects)
        return [effect for effect in reviewed if effect is not None]

    def _one(self, effect: Effect, hooks: Sequence[tuple[str | None, BeforeWrite]]) -> Effect | None:
        for table, hook in hooks:
            if table is not None and table != effect.table:
                continue
            given = hook(ProposedWrite(effect, self._tables))
            if given is None:
                continue
            if effect.value is None:
                raise InvalidValueError(
                    f"a hook gave a value for {effect.table} {effect.key!r}, which is deleted; return None, or raise "
                    "to refuse the delete"
                )
            effect = Effect(
                effect.table, effect.key, effect.before, effect.topic, self._tables.encode(effect.table, given)
            )
        return effect if effect.is_needed else None
