"""Sends a replica's hello requests."""

from collections.abc import Callable

from pubsub_lib.api import Subscriber
from pubsub_lib.core.effects import RequestHello
from pubsub_lib.errors import TransportError
from pubsub_lib.logs import fields, logger

_log = logger(__name__)


def send_hello_request(subscriber: Subscriber, request: RequestHello, is_closing: Callable[[], bool]) -> None:
    """Send a request to every publisher. A failure is logged, and not retried: without a proof of freshness the replica
    polls the store. Blocks for the driver.
    """
    try:
        subscriber.request_hello(request.nonce, request.topics)
    except TransportError as error:
        if not is_closing():
            _log.warning(
                "cannot send hello requests to the publishers: %s", error, extra=fields(topics=len(request.topics))
            )
    except Exception:  # noqa: BLE001 - a driver's bug must not prevent the sync that follows
        _log.exception("internal error of the driver while sending hello requests; please report this")
