"""Faults for the halves of any driver."""

from pubsub_lib.api import OnEnvelope
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.driver_state import SubscriberState


def ending_at(error: type[BaseException], life: SubscriberState, on_envelope: OnEnvelope) -> OnEnvelope:
    """A callback whose first error of this kind ends the receiving thread."""

    def once(envelope: Envelope) -> None:
        try:
            on_envelope(envelope)
        except error:
            life.closed = True
            raise

    return once
