"""TLS to real database servers, by the URLs of docs/security.md: only the server of the right authority and name."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import _processes
import pytest
import sqlalchemy
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer

from pubsub_lib import Store
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.store import url
from tests.e2e.service_host import ROOT

PAGE: Final = ROOT / "docs" / "security.md"
NAME: Final = "localhost"
"""The only name in the server's certificate."""
OTHER_NAME: Final = "127.0.0.1"
"""Another name of the same server."""
ADVICE: Final = "the server is not verified; see the TLS options of the URL"


class Files(NamedTuple):
    """Two authorities, and a server's certificate and key; the first authority signed the certificate."""

    right: Path
    wrong: Path
    cert: Path
    key: Path


class Kind(NamedTuple):
    """A kind of server: how its TLS is set, the query of a URL on the page, and what shows the session's encryption."""

    plain: str
    """The fixture with the URL of a database without TLS; it skips a test when the server is not installed."""
    server: type[PrivateServer]
    options: dict[str, str]
    url: str
    encrypted: str
    mismatch: str


KINDS: Final = {
    "postgresql": Kind(
        "postgres_url",
        PrivatePostgres,
        {"ssl": "on", "ssl_cert_file": "{cert}", "ssl_key_file": "{key}"},
        "postgresql://USER:PASSWORD@HOST/NAME?sslmode=verify-full&sslrootcert=FILE",
        "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        'does not match host name "127.0.0.1"',
    ),
    "mariadb": Kind(
        "mariadb_url",
        PrivateMariaDB,
        {"ssl-cert": "{cert}", "ssl-key": "{key}"},
        "mariadb://USER:PASSWORD@HOST/NAME?ssl_ca=FILE",
        "SELECT variable_value FROM information_schema.session_status WHERE variable_name = 'Ssl_version'",
        "certificate is not valid for '127.0.0.1'",
    ),
}


@pytest.fixture
def files(open_folder: Path) -> Files:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=open_folder, check=True, capture_output=True)

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("right", "wrong"):
        openssl(*new, "-x509", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    openssl(*new, "-subj", f"/CN={NAME}", "-keyout", "server.key", "-out", "server.csr")
    (open_folder / "names").write_text(f"subjectAltName=DNS:{NAME}\n")
    by = ["-CA", "right.pem", "-CAkey", "right.key", "-CAcreateserial", "-extfile", "names"]
    openssl("x509", "-req", "-in", "server.csr", *by, "-out", "server.pem")
    _processes.give_away(open_folder)  # a server refuses a key that another user could have
    return Files(*(open_folder / name for name in ("right.pem", "wrong.pem", "server.pem", "server.key")))


def url_of(kind: Kind, given: str, host: str, authority: Path) -> str:
    """The URL of the page for a server and its database, whose URL is given."""
    made = sqlalchemy.make_url(given)
    place = f"{made.username}@{host}:{made.port}/{made.database}"
    return kind.url.replace("USER:PASSWORD@HOST/NAME", place).replace("FILE", str(authority))


def refused(database: str) -> str:
    """The one sentence with which a store refuses this URL."""
    with pytest.raises(StoreUnavailable) as caught:
        Store(database).close()
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(ADVICE) == 1
    return str(caught.value)


def encryption(kind: Kind, database: str) -> str:
    """The version of TLS of a connection by this URL."""
    engine = sqlalchemy.create_engine(url.parse(database), poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return str(connection.exec_driver_sql(kind.encrypted).scalar())


PARAMETERS: Final = [pytest.param(each, id=name, marks=getattr(pytest.mark, name)) for name, each in KINDS.items()]


@pytest.mark.parametrize("kind", PARAMETERS)
def test_only_the_server_of_the_right_authority_and_name_is_accepted(
    kind: Kind, files: Files, request: pytest.FixtureRequest
) -> None:
    assert f"{kind.url}\n" in PAGE.read_text()
    request.getfixturevalue(kind.plain)
    options = {name: text.format(**files._asdict()) for name, text in kind.options.items()}
    with kind.server(options=options) as server:
        good = url_of(kind, server.url, NAME, files.right)
        with Store(good) as store:
            with store.transaction() as tx:
                tx.create("item", "one", {"n": 1}, topic="t")
            assert store.get("item", "one") == {"n": 1}
        assert encryption(kind, good).startswith("TLSv1.")
        assert "certificate verify failed" in refused(url_of(kind, server.url, NAME, files.wrong))
        assert kind.mismatch in refused(url_of(kind, server.url, OTHER_NAME, files.right))


@pytest.mark.parametrize("kind", PARAMETERS)
def test_server_without_tls_is_refused(kind: Kind, files: Files, request: pytest.FixtureRequest) -> None:
    """As a program in between that wants plain text."""
    refused(url_of(kind, request.getfixturevalue(kind.plain), NAME, files.right))
