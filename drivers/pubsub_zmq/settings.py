"""The driver's own options, checked once and frozen."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from pubsub_lib.core.limits import Positive
from pubsub_lib.core.timing import Seconds
from pubsub_lib.errors import ConfigError

_AtMostASecond = Annotated[float, msgspec.Meta(ge=0, le=1)]
_KernelSeconds = Annotated[int, msgspec.Meta(ge=1, le=32_767)]


class ZmqOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own options (explained in :mod:`pubsub_zmq.options`). Times in seconds."""

    send_hwm: Positive = 10_000
    receive_hwm: Positive = 10_000
    send_queue: Positive = 10_000
    send_wait: _AtMostASecond = 0.5
    tcp_keepalive_idle: _KernelSeconds = 1
    tcp_keepalive_interval: _KernelSeconds = 1
    tcp_keepalive_count: Annotated[int, msgspec.Meta(ge=1, le=127)] = 3
    tcp_user_timeout: _KernelSeconds = 30
    connect_timeout: Seconds = 5.0
    reconnect_interval: Seconds = 0.1
    max_reconnect_interval: Seconds = 2.0
    answer_time: Seconds = 5.0
    goodbye_linger: _AtMostASecond = 0.5
    questions_per_second: Positive = 2000

    @property
    def max_silence(self) -> int:
        """Seconds after which a subscriber closes a connection whose publisher is silent or acknowledges nothing."""
        return self.tcp_keepalive_idle + self.tcp_keepalive_interval * self.tcp_keepalive_count


def checked(given: Mapping[str, Any]) -> ZmqOptions:
    """Return the options from their names and values. Raises ConfigError for invalid ones."""
    try:
        options = msgspec.convert(given, ZmqOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"zmq_pubsub_driver cannot use its options: {error}; correct [pubsub_zmq]") from error
    for name in ZmqOptions.__struct_fields__:
        value = getattr(options, name)
        if not math.isfinite(value) or value > 2**31 // 1000:  # ZeroMQ counts in ints, times in milliseconds
            raise ConfigError(f"{name} is {value} but at most {2**31 // 1000} is allowed; correct [pubsub_zmq]")
    if options.max_reconnect_interval < options.reconnect_interval:
        raise ConfigError(
            f"max_reconnect_interval ({options.max_reconnect_interval} s) is below reconnect_interval "
            f"({options.reconnect_interval} s); raise it in [pubsub_zmq]"
        )
    return options
