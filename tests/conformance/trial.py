"""Runs one check of the suite against a broken driver, which must fail it, or against the same driver unbroken.

A check that fails usually waits for its whole patience. So the patience is long while the driver works, and short from
the moment at which its fault can act.
"""

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, Publisher, Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_lib.testing.forwarding import ForwardingSubscriber
from tests.conformance import broken
from tests.conformance.broken import PublisherFault, SubscriberFault

LONG, SHORT = 30.0, 0.5  # seconds

Table = Mapping[str, tuple[type[Any] | tuple[type[Any], ...], str]]
"""By the name of each fault: what breaks the driver, and the check that finds it."""


AGAIN = "test_both_halves_must_connect_again_by_themselves"
ALONE = "test_request_hello_must_be_answered_to_the_asker_alone"
ANSWERED = "test_on_connected_must_come_when_a_hello_request_is_answered"
BAD_INPUT = "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread"
CALLBACK = "test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread"
CLOSE = "test_close_must_be_idempotent_quick_and_safe_from_any_thread"
CONNECTED = "test_on_connected_must_be_called_at_each_connection"
CUT_OFF = "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off"
EXACT = "test_register_topic_must_be_exact"
IDEMPOTENT = "test_register_topic_must_be_idempotent"
SUBSCRIBED = "test_every_topic_must_be_subscribed_to_again"
SILENT = "test_send_event_must_not_lose_an_envelope_silently"

BROADCAST = "test_a_broadcast_hello_must_reach_every_subscriber"
ADDRESS = "test_register_listen_address_must_connect_and_unregister_must_end_it"
ASKED = "test_request_hello_must_carry_its_topics"
CHANNEL = "test_initialize_of_a_publisher_must_open_its_channel_for_hello_requests"
EVERYTHING = "test_unregister_topic_of_everything_must_leave_the_topics"
SUBSCRIBED_BEFORE = "test_on_connected_must_come_after_all_topics_were_subscribed_to_again"

OF_ANY_DRIVER: Table = {
    # publishers
    "is never done with sending": (
        broken.IsNeverDoneWithSending,
        "test_sending_for_must_be_zero_while_it_waits_for_messages",
    ),
    "has a key always": (broken.HasAKeyAlways, "test_keys_must_do_nothing_without_their_setting"),
    "names another address": (
        broken.NamesAnotherAddress,
        "test_bound_address_must_be_one_that_subscribers_can_register",
    ),
    "leaks a foreign exception when sending": (
        broken.LeaksAForeignExceptionWhenSending,
        "test_send_event_must_raise_no_foreign_exception",
    ),
    "leaks without a connection": (broken.LeaksWithoutAConnection, CUT_OFF),
    "blocks while disconnected": (broken.BlocksWhileDisconnected, CUT_OFF),
    "closes with its connection": (broken.ClosesWithItsConnection, "test_close_must_be_quick_while_cut_off"),
    "reorders undeclared": (broken.Reorders, "test_send_event_must_keep_the_order_of_a_topic"),
    "sends in a child": (broken.SendsInAChild, "test_send_event_must_be_refused_in_a_forked_child"),
    "ignores hello requests": (
        broken.IgnoresHelloRequests,
        "test_on_hello_request_may_send_and_its_errors_must_be_caught",
    ),
    "publisher reports no connection": (broken.PublisherReportsNoConnection, CONNECTED),
    "publisher reports the first connection only": (broken.PublisherReportsTheFirstConnectionOnly, CONNECTED),
    "publisher counts no error of on_connected": (
        broken.PublisherCountsNoCallbackError,
        "test_what_on_connected_raises_must_be_counted_and_not_end_the_thread",
    ),
    # subscribers
    "never registers again": (broken.NeverRegistersAgain, "test_a_topic_registered_again_must_be_received_again"),
    "never unregisters everything": (broken.NeverUnregistersEverything, EVERYTHING),
    "unregisters the topics with everything": (broken.UnregistersAllTopicsWithOne, EVERYTHING),
    "unregisters everything with a topic": (
        broken.UnregistersEverythingWithATopic,
        "test_unregister_topic_must_leave_everything",
    ),
    "ignores addresses": (broken.IgnoresAddresses, ADDRESS),
    "keeps addresses": (broken.KeepsAddresses, ADDRESS),
    "receives no broadcasts": (broken.ReceivesNoBroadcasts, BROADCAST),
    "receives broadcasts twice": (broken.ReceivesBroadcastsTwice, BROADCAST),
    "asks for one topic": (broken.AsksForOneTopic, ASKED),
    "asks for registered topics": (broken.AsksForRegisteredTopics, ASKED),
    "counts nothing received": (broken.CountsNothingReceived, "test_counters_must_count_what_was_received"),
    "leaks a foreign exception": (broken.LeaksAForeignException, "test_register_topic_must_raise_no_foreign_exception"),
    "forgets registrations while disconnected": (broken.ForgetsRegistrationsWhileDisconnected, SUBSCRIBED),
    "ignores unregistrations while disconnected": (
        broken.IgnoresUnregistrationsWhileDisconnected,
        "test_a_topic_unregistered_while_cut_off_must_not_come_back",
    ),
    "never unregisters": (broken.NeverUnregisters, "test_unregister_topic_must_stop_the_topic_alone_and_be_idempotent"),
    "drops hello requests": (broken.DropsHelloRequests, ALONE),
    "reports no connection": (broken.ReportsNoConnection, CONNECTED),
    "reports the first connection only": (broken.ReportsTheFirstConnectionOnly, CONNECTED),
    "needs the server at its start": (broken.NeedsTheServerAtItsStart, "test_daemonize_must_not_need_a_connection"),
    "drops silently": (broken.DropsSilently, SILENT),
    "ends on a bad frame": (broken.EndsOnABadFrame, BAD_INPUT),
    "ends at a callback's error": (broken.EndsAtACallbackError, CALLBACK),
    "ends at SystemExit of a callback": (broken.EndsAtSystemExit, CALLBACK),
    "hangs in close": (broken.HangsInClose, CLOSE),
}


def of_any(*names: str) -> Table:
    """These faults with the checks that they fail, for the table of one driver."""
    return {name: OF_ANY_DRIVER[name] for name in names}


class _Watched(ForwardingSubscriber):
    """Calls ``acts`` when the check does something after which a fault can show."""

    def __init__(self, inner: Subscriber, acts: Callable[[], None]) -> None:
        super().__init__(inner)
        self._acts = acts

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def watched(envelope: Envelope) -> None:
            try:
                on_envelope(envelope)
            except BaseException:
                self._acts()
                raise

        super().initialize(watched, on_connected)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        self._acts()
        super().request_hello(nonce, topics)


def fails(table: Table, fault: str, rig: Rig, suite: type[DriverConformance] = DriverConformance) -> None:
    """The driver with this fault must fail its check. The rig's own driver is unbroken.

    A fault that is no wrapper is a subclass of a class of the driver, and takes its place there. Its attribute
    ``rig_cut`` is set while the rig has cut all connections.
    """
    classes, check = table[fault]
    faults = classes if isinstance(classes, tuple) else (classes,)
    cut_off = threading.Event()
    shown_by = tuple(getattr(each, "shown_by", AssertionError) for each in faults)
    with pytest.MonkeyPatch.context() as patch:
        for each in faults:
            if not issubclass(each, PublisherFault | SubscriberFault):
                patch.setattr(each, "rig_cut", cut_off, raising=False)
                _replace(each.__bases__[0], each, patch)
        spoilt = _broken(rig, faults, cut_off)
        with pytest.raises((pytest.fail.Exception, *shown_by)):
            getattr(suite(), check)(spoilt)


def passes(rig: Rig, check: str, suite: type[DriverConformance] = DriverConformance) -> None:
    """The unbroken driver must pass the check in the same rig, with the long patience."""
    getattr(suite(), check)(dataclasses.replace(rig, patience=LONG))


def checks(table: Table) -> list[str]:
    """The checks that find the faults of this table."""
    return sorted({check for _, check in table.values()})


def _broken(rig: Rig, faults: tuple[type[Any], ...], cut_off: threading.Event) -> Rig:
    def acts() -> None:
        made.patience = SHORT

    def acting(call: Callable[..., object], before: Callable[[], None] = acts) -> Callable[..., object]:
        @functools.wraps(call)
        def called(*given: object) -> object:
            before()
            acts()
            return call(*given)

        return called

    class Broken(rig.driver):  # type: ignore[name-defined,misc]
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            half: Publisher = super().publisher(settings)
            for fault in faults:
                half = fault(half, cut_off) if issubclass(fault, PublisherFault) else half
            return half

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            half: Subscriber = super().subscriber(settings)
            for fault in faults:
                half = fault(half, cut_off) if issubclass(fault, SubscriberFault) else half
            return _Watched(half, acts)

    hasty = any(getattr(fault, "hasty", False) for fault in faults)
    made = dataclasses.replace(
        rig,
        driver=Broken,
        inject=rig.inject and acting(rig.inject),
        ask=rig.ask and acting(rig.ask),
        stall=rig.stall and acting(rig.stall),
        cut=rig.cut and acting(rig.cut, cut_off.set),
        restore=rig.restore and acting(rig.restore, cut_off.clear),
        patience=SHORT if hasty else LONG,
    )
    return made


def _replace(kind: type, fault: type, patch: pytest.MonkeyPatch) -> None:
    """Let every module of the driver that uses this class use the broken one."""
    package = kind.__module__.rpartition(".")[0]
    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(package) and vars(module).get(kind.__name__) is kind and fault.__module__ != name
    ]
    assert users, f"no module of {package} uses {kind}"
    for module in users:
        patch.setattr(module, kind.__name__, fault)
