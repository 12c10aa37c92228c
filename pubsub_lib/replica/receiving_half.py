"""The receiving half of a replica: the driver's, or the caller's, with the parents of the settings."""

import msgspec

from pubsub_lib import contract, loader
from pubsub_lib.api import Subscriber
from pubsub_lib.replica.parent_subscriber import ParentSubscriber
from pubsub_lib.replica.sources import check_driver
from pubsub_lib.settings import Settings


class ReceivingHalf(msgspec.Struct, frozen=True):
    """A subscriber, not yet initialized, and what its driver does."""

    subscriber: Subscriber
    parents: ParentSubscriber | None
    """The same, with parents."""
    binds: bool
    """Publishers bind addresses, which the directory has."""
    polls: bool
    """The driver reads the changelog itself."""


def receiving_half(settings: Settings, given: Subscriber | None) -> ReceivingHalf:
    """That of the settings' driver, or around the ``given`` one. Raises ConfigError, DriverError."""
    if given is not None:
        return _with_parents(settings, contract.check_subscriber(given), binds=False, polls=False)
    needs = {"bind_based": "parents in [pubsub]"} if settings.parents else {}
    driver = loader.load(settings.driver, {**settings.needs(), **needs})
    check_driver(settings, driver.capabilities)
    own = settings.for_driver()
    if settings.parents:
        own = msgspec.structs.replace(own, addresses=())
    can = driver.capabilities
    made = contract.subscriber(driver, own)
    return _with_parents(settings, made, binds=can.bind_based, polls=not can.carries_envelopes)


def _with_parents(settings: Settings, subscriber: Subscriber, *, binds: bool, polls: bool) -> ReceivingHalf:
    if not settings.parents:
        return ReceivingHalf(subscriber, None, binds, polls)
    parents = ParentSubscriber(subscriber, settings.parents, settings.timing)
    return ReceivingHalf(parents, parents, binds, polls)
