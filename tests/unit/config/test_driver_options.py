"""Options that several drivers have are the same options in each."""

from typing import Annotated

import msgspec
from msgspec import Meta
from oslo_config import types

from pubsub_lib.config.driver_options import (
    MAX_RECONNECT_INTERVAL,
    RECONNECT_INTERVAL,
    SEND_WAIT,
    SendWait,
    half_given,
    reconnect_conflict,
)
from pubsub_lib.config.fields import opts_of

Mine = Annotated[float, Meta(ge=0.5, le=60)]


class Toy(msgspec.Struct, frozen=True):
    reconnect_interval: Annotated[Mine, RECONNECT_INTERVAL] = 1.0
    max_reconnect_interval: Annotated[Mine, MAX_RECONNECT_INTERVAL] = 2.0
    send_wait: Annotated[SendWait, SEND_WAIT] = 0.5


def test_a_driver_has_its_own_bounds_and_defaults_and_the_shared_description() -> None:
    first, longest, wait = opts_of(Toy)
    assert (first.name, first.default, first.type) == ("reconnect_interval", 1.0, types.Float(min=0.5, max=60))
    assert first.help == "Wait before a lost connection is retried; it doubles with each failure. In seconds."
    assert (longest.default, longest.help) == (2.0, "Maximum wait before a lost connection is retried. In seconds.")
    assert (wait.default, wait.type) == (0.5, types.Float(min=0, max=1))


def test_a_maximum_wait_below_the_first_is_a_conflict_with_both_values() -> None:
    assert reconnect_conflict(Toy()) == ""
    assert reconnect_conflict(Toy(2.0, 2.0)) == ""
    wrong = "max_reconnect_interval (2.0 s) is below reconnect_interval (3.0 s); raise it"
    assert reconnect_conflict(Toy(3.0)) == wrong


def test_an_option_without_its_other_half_is_named() -> None:
    class Files(msgspec.Struct):
        cert: str = ""
        key: str = ""
        user: str = ""

    both = (("cert", "key"), ("key", "user"))
    assert half_given(Files(), *both) == ""
    assert half_given(Files("c", "k", "u"), *both) == ""
    assert half_given(Files("c"), *both) == "of cert and key only one is given; set both or none"
    assert half_given(Files("c", "k"), *both) == "of key and user only one is given; set both or none"
