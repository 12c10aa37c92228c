"""Addresses with the port 0: the system chooses a free port when a publisher binds such an address."""

from typing import Final

from pubsub_lib.errors import TransportError

_TCP: Final = "tcp://"


def has_free_port(address: str) -> bool:
    """Whether the port of this address is known only when it is bound."""
    return address.startswith(_TCP) and address.endswith(":0")


def with_bound_port(address: str, bound: str) -> str:
    """The address with the port of the ``bound`` one in place of 0; any other address unchanged. Raises TransportError
    when that is not known.
    """
    if not has_free_port(address):
        return address
    port = bound.rpartition(":")[2]
    if not bound.startswith(_TCP) or not port.isdecimal() or int(port) == 0:
        raise TransportError(
            f"the driver does not name the port that it bound for {address}, so no replica could find the publisher; "
            "set publisher_port in [pubsub]"
        )
    return f"{address.rpartition(':')[0]}:{port}"
