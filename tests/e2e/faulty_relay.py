"""A relay's service that breaks a rule for some messages: ``faulty_relay.py NAME --config-file FILE``.

A message with the object ``above-NAME`` is lost before the relay receives it. One with ``forget-NAME`` is applied and
never sent. One with ``below-NAME`` is lost after the relay has sent it.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Link
from pubsub_lib.core.relaying import Relay
from pubsub_lib.relay.core import RelayCore
from pubsub_lib.relay.engine import RelayEngine
from pubsub_lib.service.main import main


def has(key: str, links: Iterable[Link]) -> bool:
    return any(change.key == key for link in links for change in link.changes)


def links_of(envelope: Envelope) -> list[Link]:
    return [message.link for message in envelope.messages]


def plant(name: str) -> None:
    receive, publish, begin = RelayEngine.on_envelope, Relay._publish, RelayCore.__init__

    def on_envelope(self: RelayEngine, envelope: Envelope) -> None:
        if not has(f"above-{name}", links_of(envelope)):
            receive(self, envelope)

    def publish_others(self: Relay, links: Iterable[Link], now: float) -> list[Envelope]:
        return publish(self, [link for link in links if not has(f"forget-{name}", [link])], now)

    def begin_lossy(self: RelayCore, relay: Relay, send: Callable[[Envelope], None], *rest: Any) -> None:
        def lossy(envelope: Envelope) -> None:
            if not has(f"below-{name}", links_of(envelope)):
                send(envelope)

        begin(self, relay, lossy, *rest)

    RelayEngine.on_envelope = on_envelope  # type: ignore[method-assign]
    Relay._publish = publish_others  # type: ignore[method-assign]
    RelayCore.__init__ = begin_lossy  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    sys.exit(main())
