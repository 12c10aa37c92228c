"""``pubsub-db clients add | list | grant | revoke``: the programs that publishers with keys accept."""

import argparse
import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pubsub_lib import curve_keys
from pubsub_lib.api import Client
from pubsub_lib.cli.context import reading, settings_of
from pubsub_lib.cli.output import Act, Json, List, Show
from pubsub_lib.command.exit_codes import FileError
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import UsageError
from pubsub_lib.store import Store

COLUMNS: Final = ("name", "topics", "everything", "public_key")

NONE_NAMED: Final = "no topic is named; give --topics or --everything"


class ListClients(List):
    """List the clients: the topics that each may receive, and its public key."""

    example = "clients list -f json"
    columns = COLUMNS

    nothing = "there are no clients; publishers with keys accept no program"

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """By name."""
        with reading(self) as store:
            return [_row(each) for each in store.directory.clients.all()]


class AddClient(Act):
    """Add a client, and print its key file with the secret key, which is stored nowhere else.

    When the standard output is a file, or with --output, only its owner can read the file.
    """

    example = "clients add host-7 --topics tenant-1 --output host-7.key"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The client's name, topics, and where its key goes."""
        parser.add_argument("name", metavar="NAME", help="a name for the client, such as its host's name")
        _add_topics(parser, "may receive")
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--output", metavar="FILE", help="write the key to this new file, not to the output")
        where.add_argument(
            "--public-key",
            metavar="KEY",
            help="the public key of a pair that the client has made itself; then no key is printed "
            "(--public-key=KEY if it begins with -)",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """The client may connect within clients_interval. Raises AlreadyExists, FileError, StoreError."""
        name, topics = parsed_args.name, _topics(parsed_args)
        if parsed_args.public_key is not None:
            self._add(Client(name, parsed_args.public_key, topics))
            return
        pair = curve_keys.new_pair()
        self._deliver_and_add(Client(name, pair.public, topics), curve_keys.file_text(name, pair), parsed_args.output)

    def _deliver_and_add(self, client: Client, text: str, output: str | None) -> None:
        """The key is delivered first: nothing else has the secret key of a client that was added."""
        with Store(settings_of(self), create=False) as store:
            store.directory.clients.check(client)
            if output is not None:
                _write_new(output, text)
            else:
                _make_private(self.app.stdout)
                self.app.stdout.write(text)
                self.app.stdout.flush()
            try:
                store.directory.clients.add(client)
            except BaseException:
                self.app.LOG.warning(
                    "the key %s is invalid, unless pubsub-db clients list shows the client with its public key",
                    "that was printed" if output is None else f"in {output}",
                )
                raise

    def _add(self, client: Client) -> None:
        with Store(settings_of(self), create=False) as store:
            store.directory.clients.add(client)


class GrantTopics(Show):
    """Let a client receive further topics."""

    example = "clients grant host-7 --topics tenant-2"
    columns = COLUMNS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The client and the topics."""
        parser.add_argument("name", metavar="NAME")
        _add_topics(parser, "may also receive")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Takes effect within clients_interval. Raises NotFound."""
        topics = _topics(parsed_args)
        if not topics:
            raise UsageError(NONE_NAMED)
        with Store(settings_of(self), create=False) as store:
            return _row(store.directory.clients.grant(parsed_args.name, topics))


class RevokeClient(Show):
    """Remove a client and its key, or with --topics or --everything only these grants.

    Publishers end the client's connection within clients_interval and 2 s. All other clients connect again.
    """

    example = "clients revoke host-7"
    columns = COLUMNS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The client and the topics."""
        parser.add_argument("name", metavar="NAME")
        _add_topics(parser, "may not receive any more")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Shows what is left. Raises NotFound, also for a topic that was not granted."""
        topics = _topics(parsed_args)
        if parsed_args.topics and not topics:
            raise UsageError(NONE_NAMED)  # an empty variable of a script must not remove the client
        with Store(settings_of(self), create=False) as store:
            left = store.directory.clients.revoke(parsed_args.name, topics or None)
            if not topics:
                self.app.LOG.info("the client %s and its key were removed", left.name)
            return _row(left)


def _add_topics(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--topics", action="append", default=[], metavar="TOPIC,…", help=f"topics that the client {what}"
    )
    parser.add_argument(
        "--everything", action="store_true", help=f"a grant of every topic, and of subscriptions to all, that it {what}"
    )


def _topics(parsed_args: argparse.Namespace) -> frozenset[str]:
    named = {topic for each in parsed_args.topics for topic in each.split(",") if topic}
    return frozenset(named | ({ALL} if parsed_args.everything else set()))


def _row(client: Client) -> tuple[str, Json, bool, str]:
    topics = json.dumps(sorted(client.topics - {ALL}), ensure_ascii=False).encode()
    return client.name, Json(topics), ALL in client.topics, client.public_key


def _write_new(name: str, text: str) -> None:
    """Make a file that only this user can read; it is removed when it cannot be written. Raises FileError."""
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise FileError(f"the file {name} cannot be created ({error.strerror}); the client was not added") from error
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise FileError(f"the file {name} cannot be written ({error.strerror}); the client was not added") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _make_private(out: Any) -> None:
    """Let only its owner read the file to which a shell has redirected the standard output."""
    try:
        descriptor = out.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
    except (OSError, ValueError) as error:  # a stream without a descriptor, or a file of another user
        if isinstance(error, PermissionError):
            raise FileError("the output is a file of another user; give --output with a new file") from error
