"""The rig of the driver that listens to PostgreSQL: its halves connect through a proxy, the changes' writer directly.

The interval between two polls is an hour while a subscriber listens, so that a notification must wake it for each
change.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from _servers import PrivateServer
from sqlalchemy import make_url

from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link
from pubsub_lib.store import Store
from pubsub_lib.testing.conformance import Rig
from pubsub_lib.testing.stream_proxy import StreamProxy
from pubsub_pgnotify.driver import PgNotifyDriver
from tests.conformance.test_polling import writer

OPTIONS: Mapping[str, Any] = {"listening": 3600.0, "fastest": 0.002, "slowest": 0.02, "max_backoff": 0.2}


def database(server: PrivateServer) -> Iterator[str]:
    """The URL of one database for all tests of a module: to make one for each test takes longer than most tests."""
    url = server.create_database()
    yield url
    server.drop_database(url)


@contextmanager
def rig_of(url: str) -> Iterator[Rig]:
    """A rig on this database."""
    direct = make_url(url)
    announcer = PgNotifyDriver.publisher(DriverSettings(store_url=url))
    announcer.initialize(lambda request: None, lambda: None)
    proxy = StreamProxy("tcp://127.0.0.1:0", f"tcp://{direct.host}:{direct.port}")
    behind = direct.set(port=int(proxy.address.rpartition(":")[2])).render_as_string(hide_password=False)
    with closing(proxy), closing(announcer), Store(url) as store:
        change = writer(store)

        def write(topic: str, values: Mapping[str, str]) -> Link:
            link = change(topic, values)
            message = codec.split(link, Limits())[-1]
            announcer.send_event(Envelope("writer", uuid.uuid4().hex, topic, 1, [message], None, store.store_id))
            return link

        settings = DriverSettings(store_url=behind, options=OPTIONS)
        yield Rig(PgNotifyDriver, settings, write=write, cut=proxy.cut, restore=proxy.restore)
