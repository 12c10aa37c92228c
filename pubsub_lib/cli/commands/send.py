"""``pubsub-db send``."""

import argparse
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

import msgspec

from pubsub_lib.cli import prompts
from pubsub_lib.cli.context import Writing, settings_of, writing
from pubsub_lib.cli.output import Show
from pubsub_lib.command import exit_codes
from pubsub_lib.errors import UsageError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.replica.replica import Replica
from pubsub_lib.settings import Settings
from pubsub_lib.store import DEFAULT_TOPIC

TABLE: Final = "pubsub_test"
"""The table of test events."""


class Send(Show):
    """Write a test event to a topic, publish it, and delete it again.

    The event is an object of the table pubsub_test, whose key is this host's name and a random suffix. With --wait
    the command also runs a replica of the topic, with the same configuration but without HTTP endpoint, journal and
    announcements, and shows how long the event took.
    """

    example = "send --topic tenant-1 --wait 10"
    columns = ("topic", "key", "position", "told", "arrived_ms")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The event, its topic, and how long to wait for it."""
        parser.add_argument(
            "--topic", default=DEFAULT_TOPIC, metavar="TOPIC", help="topic of the event (default: %(default)s)"
        )
        parser.add_argument("--value", metavar="VALUE", help="JSON to send (default: host and time)")
        parser.add_argument("--keep", action="store_true", help="leave the object in the store")
        parser.add_argument(
            "--wait", type=float, metavar="SECONDS", help="subscribe to the topic; maximum time until the event arrives"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Two transactions. Raises WaitTimeout when the event does not arrive."""
        host, topic = socket.gethostname(), parsed_args.topic
        # A unique key: the command must not delete an event that was kept, or an event of another send.
        key = f"{host}-{secrets.token_hex(4)}"
        if parsed_args.wait is not None and not 0 < parsed_args.wait < 1e6:
            raise UsageError(f"--wait {parsed_args.wait} is invalid; give a number of seconds above 0")
        settings = settings_of(self)
        value = {"host": host, "sent": time.time()}
        if parsed_args.value is not None:
            value = prompts.value(parsed_args.value, settings.limits)
        with writing(self, settings) as opened:
            position, seconds = _send(opened, topic, key, value, parsed_args.wait, parsed_args.keep)
        # Known only now: a worker accepts messages for a service that is down, and drops them when it is closed.
        if opened.handing_over.error is not None:
            self.exit_code = exit_codes.UNREACHABLE
        arrived = None if seconds is None else round(seconds * 1000, 1)
        return topic, key, position, opened.handing_over.how, arrived


def _for_test(settings: Settings) -> Settings:
    """Without the endpoint, the journal and the announcements: the port and the name are those of the replica that the
    INI file is for, and that may run on this host."""
    return msgspec.structs.replace(settings, replica_metrics_port=0, journal=JournalSettings(), announce_interval=0.0)


def _send(
    opened: Writing, topic: str, key: str, value: Any, wait: float | None, keep: bool
) -> tuple[int, float | None]:
    """(position, seconds until it arrived)."""
    with ExitStack() as stack:
        replica = None
        if wait is not None:
            replica = stack.enter_context(Replica(_for_test(opened.settings), [topic], default_topic=False))
            replica.wait_synced(wait)
        try:
            begun = time.monotonic()
            with opened.store.transaction() as tx:
                tx.set(TABLE, key, value, topic=topic)
            assert tx.commit is not None, "a new key is a change"
            if replica is None or wait is None:
                return tx.commit.point.position, None
            replica.wait_for(tx.commit, wait)
            return tx.commit.point.position, time.monotonic() - begun
        finally:
            if not keep:
                with opened.store.transaction() as tx:
                    tx.delete(TABLE, key, missing_ok=True)
