"""The tasks of writers, and the transaction in which one is killed."""

from collections.abc import Mapping
from typing import Final

from _routes.configuration import Configuration
from _routes.plan import Plan, WriterTask
from pubsub_lib.errors import UsageError
from pubsub_lib.failpoints import VARIABLE

HELD_BACK: Final = 3
"""The last transactions of each writer are reserved for late kills: the machine may be slower than the plan."""


def writer_task(plan: Plan, configuration: Configuration, index: int, mine: int, held_back: int) -> WriterTask:
    """The task of a writer with ``mine`` changes."""
    transactions = _transactions(plan, mine)
    return WriterTask(
        name=plan.writer(index),
        configuration=str(configuration.service if plan.service else configuration.polling),
        changes=str(plan.changes),
        maximum=plan.max_changes,
        index=index,
        of=plan.writers,
        size=plan.write_size,
        pause=plan.replay_seconds / transactions if transactions else 0.0,
        held_back=held_back,
    )


def killed_in(plan: Plan, task: WriterTask, mine: int, at: float | None) -> Mapping[str, str]:
    """The environment variables with which a writer is killed at this fraction of its changes; None: it is not.

    Raises UsageError when it has too few changes.
    """
    if at is None:
        return {}
    transactions = _transactions(plan, mine)
    if transactions < HELD_BACK + 3:
        raise UsageError(f"{task.name}, which will be killed, has only {mine} changes; give more --changes")
    # Kill it after COMMIT and before the hand-over: then the transaction is committed and unsent for certain.
    number = min(max(2, round(at * transactions)), transactions - HELD_BACK - 1)
    return {VARIABLE: f"writer.after_commit=kill@{number}"}


def _transactions(plan: Plan, mine: int) -> int:
    return -(-mine // plan.write_size)
