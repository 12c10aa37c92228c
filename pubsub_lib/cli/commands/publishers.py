"""``pubsub-db publishers``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import reading, settings_of
from pubsub_lib.cli.output import List
from pubsub_lib.errors import NotFound
from pubsub_lib.store import Service, Store


class Publishers(List):
    """List the services in the directory: the address of each, and how many seconds are left of its lease.

    A running service removes entries whose lease expired; --forget removes a service's entries at once. A running
    service registers again when it renews its lease.
    """

    example = "publishers --sort-column service"
    columns = ("service", "uuid", "address", "state", "lease_left", "role")

    nothing = "no service is in the directory"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The service whose entries are removed."""
        parser.add_argument(
            "--forget", metavar="NAME", help="remove this service's entries, and show the other entries"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Leases are measured by the database's clock. Raises NotFound when ``--forget`` names an unknown service."""
        if parsed_args.forget is None:
            with reading(self) as store:
                return rows(store.directory.entries())
        name = parsed_args.forget
        settings = settings_of(self)
        # Not by ``writing``: no object changes, so no replica has to be notified.
        with Store(settings, create=False) as store:
            directory = store.directory
            entries = [each for each in directory.entries() if each.service == name]
            if not entries:
                raise NotFound(f"there is no service {name!r} in the directory; see pubsub-db publishers")
            for each in entries:
                directory.unregister(each.uuid)
            if any(each.seconds_left > 0 for each in entries):
                self.app.LOG.info("%s has a valid lease: if it runs, it registers again when it renews the lease", name)
            return rows(directory.entries())


def rows(entries: Iterable[Service]) -> list[tuple[str, str, str, str, float, str]]:
    """One row for each entry."""
    return [
        (e.service, e.uuid, e.address, "live" if e.seconds_left > 0 else "ended", round(e.seconds_left, 1), e.role)
        for e in entries
    ]
