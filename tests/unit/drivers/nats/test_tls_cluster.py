"""Servers of a cluster that another server named: their certificates have the names of hosts, or their addresses."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from _processes import poll

from tests.unit.drivers.certificates import Certificate, certificate
from tests.unit.drivers.nats.fake_server import INFO, FakeServer
from tests.unit.drivers.nats.test_server import LONG, listening, settings

HOLDERS = {"localhost": "DNS:localhost", "127.0.0.1": "IP:127.0.0.1", "127.0.0.2": "IP:127.0.0.2"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """By what the certificate names."""
    folder = tmp_path_factory.mktemp("tls")
    return {name: certificate(folder, name, holder) for name, holder in HOLDERS.items()}


@pytest.fixture(scope="module")
def authorities(certificates: dict[str, Certificate], tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("tls") / "all.pem"
    path.write_bytes(b"".join(each.cert.read_bytes() for each in certificates.values()))
    return str(path)


@contextmanager
def cluster(certificates: dict[str, Certificate], *named: tuple[str, str]) -> Iterator[list[FakeServer]]:
    """Servers, each with the name in its certificate and the host by which the one before names it."""
    with ExitStack() as ending:
        servers = []
        for name, host in named:
            at = "127.0.0.1" if host == "localhost" else host
            servers.append(ending.enter_context(FakeServer(tls=certificates[name].context(), host=at)))
        for server, following, (_, host) in zip(servers, servers[1:], named[1:], strict=False):
            more = b'"tls_required":true,"connect_urls":["%b:%d"]}' % (host.encode(), following.port)
            server.info = INFO.replace(b"}", b"," + more)
        servers[-1].info = INFO.replace(b"}", b',"tls_required":true}')
        yield servers


@pytest.mark.parametrize(
    "named",
    [
        [("localhost", "localhost"), ("localhost", "127.0.0.1"), ("localhost", "127.0.0.2")],
        [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")],
        [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("localhost", "127.0.0.1")],
        [("localhost", "localhost"), ("127.0.0.2", "127.0.0.2")],
    ],
    ids=["name of the first server", "own addresses", "name that was found", "own address after a name"],
)
def test_a_server_that_another_one_named_takes_over(
    certificates: dict[str, Certificate], authorities: str, named: list[tuple[str, str]]
) -> None:
    with cluster(certificates, *named) as servers:
        given = settings(f"tls://{named[0][1]}:{servers[0].port}", tls_ca_file=authorities)
        with listening(given) as listener:
            for server, following in pairwise(servers):
                server.stop()
                listener.until_connected()
                assert following.peers


def test_a_server_that_another_one_named_needs_a_certificate_of_either_name(
    certificates: dict[str, Certificate], authorities: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster(certificates, ("localhost", "localhost"), ("127.0.0.1", "127.0.0.2")) as (first, second):
        with listening(settings(f"tls://localhost:{first.port}", tls_ca_file=authorities)) as listener:
            first.stop()
            assert poll(lambda: len(second.peers) > 4, LONG)
            assert not listener.connected.is_set()
        assert [each.commands for each in second.peers if each.commands] == []
    refusals = [each for each in caplog.messages if "gives no encrypted connection" in each]
    assert ["'localhost'" in each for each in refusals] == [True, False], "not one line for each name"
