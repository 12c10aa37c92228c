"""Options of ``zmq_pubsub_multiproc_driver``, in the group ``[pubsub_ipc]``. Needs no ZeroMQ."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pubsub_lib.config.fields import option, opts_of
from pubsub_lib.core.limits import Positive

GROUP: Final = "pubsub_ipc"
"""The group of an INI file; without it, it would be the package's name."""
EXTRA: Final = "zmq"
"""The extra of pubsub-lib that installs the packages that the driver imports."""
BINDS: Final = False
"""Publishers bind no address."""


class IpcOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. Times in seconds."""

    buffer: Annotated[
        Positive,
        option(
            "Maximum number of messages that a worker buffers while the publisher service is down or slow. One above "
            "8 KiB counts once more for each further 8 KiB, so their bytes are bounded, too: 20 MiB by default."
        ),
    ] = 2500
    when_full: Annotated[
        Literal["wait", "raise"],
        option(
            "Behaviour of a worker whose buffer is full: wait for room for at most full_wait, or raise "
            "HandoffRejectedError in the writer at once. In both cases the change is in the database and reaches every "
            "replica later."
        ),
    ] = "wait"
    full_wait: Annotated[
        float,
        Meta(ge=0, le=0.9),
        option("Maximum time that a worker waits for room in its buffer. In seconds."),
    ] = 0.5
    linger: Annotated[
        float,
        Meta(ge=0, le=1),
        option(
            "Maximum time that a closing worker waits until the service has taken the buffered messages. Then it drops "
            "them, and replicas receive the changes later. In seconds."
        ),
    ] = 0.5
    receive_buffer: Annotated[
        Positive,
        option(
            "Maximum number of messages of each worker that the service buffers, counted as those of buffer: 78 MiB by "
            "default. After that, the worker's own buffer fills."
        ),
    ] = 10_000


OPTIONS: Final = opts_of(IpcOptions)
