"""The sync channel of a replica's current parent, as the parent's hellos name it."""

from collections.abc import Sequence
from typing import Final, Protocol

from pubsub_lib.sync.client import Busy
from pubsub_lib.sync.urls import PATH, ChannelUrl, warn_of_plain

OWN_HOST: Final = "127.0.0.1"
LOOK_AGAIN: Final = 1.0
"""Seconds until the hellos of a parent that has named no channel are looked at again, which costs nothing."""


class Parent(Protocol):
    """The used part of :class:`pubsub_lib.replica.parent_subscriber.ParentSubscriber`."""

    @property
    def channel(self) -> tuple[str, int]:
        """The parent's address, and the port of its sync channel; 0: it has named none."""

    @property
    def left_channel(self) -> tuple[str, int]:
        """The same of the parent that was left last; 0: none was, or it had named none."""


class ParentChannel:
    """Any thread. A hello names the port alone. The host is that of the parent's address in the configuration, so that
    no hello leads a replica to another host.
    """

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._warned: set[ChannelUrl] = set()
        """Their ports are bounded, and so are the parents."""

    def __call__(self) -> Sequence[ChannelUrl]:
        """The URL of the parent's sync channel. Raises Busy when its hellos name none. Warns once of each
        that is not encrypted.
        """
        address, port = self._parent.channel
        if not port:
            raise Busy(
                f"the parent at {address} has named no sync channel in a hello yet; if it runs, set serve_syncs = true "
                "there and let its metrics_address be that of its publisher, or set sync_url or store_url here",
                LOOK_AGAIN,
            )
        url = ChannelUrl(False, host_of(address), port, PATH)
        if url not in self._warned:
            self._warned.add(url)
            warn_of_plain((url,))
        return (url,)


def left_server(parent: Parent) -> tuple[str, int]:
    """Host and port of the sync channel of the parent that was left last; port 0: there is none."""
    address, port = parent.left_channel
    return host_of(address), port


def host_of(address: str) -> str:
    """The host of a publisher's address. One without a host, such as that of an ipc socket, is of this host."""
    scheme, _, rest = address.partition("://")
    host = "" if scheme == "ipc" else rest.rpartition(":")[0]
    return host.strip("[]") or OWN_HOST
