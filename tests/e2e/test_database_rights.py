"""The roles of docs/database-rights.md on PostgreSQL and MariaDB: each can do its work, and nothing else."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import poll
from sqlalchemy import URL, Engine, create_engine, func, select, text, update
from sqlalchemy.exc import DBAPIError

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.errors import ConfigError, PubSubError
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.service.service import PublisherService
from pubsub_lib.store import administration, schema, url
from tests.unit.world import LONG, settings

PAGE = Path(__file__).parents[2] / "docs" / "database-rights.md"
WRITTEN = sorted(schema.metadata.tables.keys() - {"pubsub_clients", "pubsub_grants"})  # those: by the owner only
TABLES = sorted([*schema.metadata.tables, schema.VERSION_TABLE])
ENTRIES = (schema.services, schema.leases)
QUICK = ServiceSettings(
    address="memory://x",
    lease=5.0,
    follow_interval=0.02,
    grace=0.05,
    trim_interval=0.05,
    keep_links=2,
    recount_time=0.1,
    metrics_port=0,
)

REFUSED = r"(permission denied for table pubsub_|command denied to user .* for table .*pubsub_)"
"""The message of PostgreSQL, and that of MariaDB."""
ROLES = ("controller", "worker", "service")


def documented(database: URL) -> list[str]:
    """The statements of the page, for this database, with roles of its own: roles belong to the whole server."""
    on_postgres, on_mariadb = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    statements = on_postgres if database.get_backend_name() == "postgresql" else on_mariadb
    named = re.sub(r"\bnet_(\w+)", rf"{database.database}_\1", statements)
    named = re.sub(r"\bnet(?=[. ])", str(database.database), named)
    return [each for each in named.split(";") if each.strip()]


@pytest.fixture(
    params=[
        pytest.param("postgres_url", id="postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb_url", id="mariadb", marks=pytest.mark.mariadb),
    ]
)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database on a server with roles."""
    request.applymarker(pytest.mark.empty_database)
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def owner(database_url: str) -> Iterator[Engine]:
    """The owner of the tables, after the documented statements."""
    with Store(database_url):
        pass
    made = url.parse(database_url)
    engine = create_engine(made)
    with engine.begin() as connection:
        for statement in documented(made):
            connection.execute(text(statement))
    yield engine
    drop = "DROP OWNED BY {0}; DROP ROLE {0}" if engine.name == "postgresql" else "DROP USER {0}"
    with engine.begin() as connection:
        for role in ROLES:
            connection.execute(text(drop.format(f"{made.database}_{role}")))
    engine.dispose()


@pytest.fixture
def url_of(owner: Engine) -> Callable[[str], str]:
    """The database's URL for a role of the page."""

    def made(role: str) -> str:
        password = None if owner.name == "postgresql" else "PASSWORD"
        given = owner.url.set(username=f"{owner.url.database}_{role}", password=password)
        return given.render_as_string(hide_password=False)

    return made


def write(store: Store, value: object, **more: Any) -> Any:
    with store.transaction(**more) as tx:
        tx.set("a", "1", value, topic="t")
    return tx.commit


def test_controller_reads_and_cannot_write(database_url: str, url_of: Callable[[str], str]) -> None:
    with Store(database_url) as writer:
        write(writer, 1)
    config = settings(url_of("controller"), driver="db_polling_pubsub_driver", driver_options={}, service_name="")
    with Replica(config, ["t"]) as replica:
        replica.wait_synced(LONG)
        assert replica.get("a", "1") == 1
    with Store(config) as store:
        for forbidden in (
            lambda: write(store, 2),
            lambda: store.unique_id("x"),
            lambda: store.trim(keep_links=0),
            lambda: store.directory.acquire("orphans", "me", 5.0),
        ):
            with pytest.raises(ConfigError, match=rf"see its user, password, rights .* \(.*{REFUSED}"):
                forbidden()
        assert store.get("a", "1") == 1


@pytest.mark.parametrize("role", ["worker", "service"])
def test_workers_role_and_services_role_write_objects(role: str, url_of: Callable[[str], str]) -> None:
    with Store(url_of(role)) as store:
        for value in range(3):
            assert write(store, value).point.position == value + 1
        with store.transaction() as tx:
            tx.create("a", "2", 1, topic="u")
            tx.set("a", "1", 9, topic="u")
        with store.transaction() as tx:
            tx.delete("a", "1")
        assert [store.unique_id("x"), store.unique_id("x")] == [1, 2]
        assert (store.get("a", "1"), store.get("a", "2")) == (None, 1)


def test_worker_can_write_no_lease_and_not_trim(url_of: Callable[[str], str]) -> None:
    with Store(url_of("worker")) as store:
        write(store, 1)
        for forbidden in (
            lambda: store.trim(keep_links=0),
            lambda: store.directory.acquire("orphans", "me", 5.0),
            lambda: store.directory.register("api-1", "0" * 32, "", 60.0),
        ):
            with pytest.raises(ConfigError, match=REFUSED):
                forbidden()


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize(("group_commit", "writes_as"), [("process", "worker"), ("host", "service")])
def test_service_does_all_its_work(
    group_commit: str, writes_as: str, owner: Engine, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    made = settings(url_of("service"), service_name="api-1")
    config: Settings = msgspec.structs.replace(
        made,
        group_commit=group_commit,
        multiproc_driver="memory",
        multiproc_socket=f"{tmp_path}/hop/socket",
        multiproc_options={"bus": f"{made.driver_options['bus']}-hop"},
    )
    worker, controller = (
        msgspec.structs.replace(config, store_url=url_of(role), service_name=name)
        for role, name in ((writes_as, "api-1"), ("controller", ""))
    )
    with PublisherService(config, QUICK) as service:
        with Store(worker) as store:
            with Replica(controller, ["t"]) as replica, Worker(worker, store):
                replica.wait_synced(LONG)
                for value in range(5):
                    commit = write(store, value)
                replica.wait_for(commit, timeout=LONG)
            if group_commit == "host":
                assert service.counters()["commits"]["requests"] == 5
            write(store, 5, origin="")
        assert poll(lambda: service.counters()["links"]["took_over"] == 1, LONG), service.counters()
        assert poll(lambda: service.counters()["maintenance"]["trimmed"] == 4, LONG), service.counters()
        with owner.begin() as connection:
            connection.execute(update(schema.objects).values(value=b'"rot"'))
        assert poll(lambda: service.counters()["recount"]["repaired"] == 1, LONG), service.counters()
        assert (service.problems(), service.stuck()) == ([], [])
    with owner.connect() as connection:
        left = [connection.execute(select(func.count()).select_from(each)).scalar() for each in ENTRIES]
    assert left == [0, 0]


@pytest.mark.parametrize("role", ROLES)
def test_no_role_can_change_or_make_tables(role: str, owner: Engine, url_of: Callable[[str], str]) -> None:
    with pytest.raises(PubSubError, match=r"must be owner of table|DROP command denied"):
        administration.drop(url_of(role))
    engine = create_engine(url_of(role))
    refused = r"permission denied for schema|CREATE command denied"
    with engine.connect() as connection, pytest.raises(DBAPIError, match=refused):
        connection.execute(text("CREATE TABLE other (id INTEGER)"))
    engine.dispose()
    if owner.name == "postgresql":
        with pytest.raises(ConfigError, match="may not make tables"):
            administration.require_create(url_of(role))


def test_page_names_every_table_that_a_role_may_read_or_write(owner: Engine) -> None:
    if owner.name == "postgresql":  # reading is granted table by table
        asked = "SELECT table_name FROM information_schema.role_table_grants WHERE grantee = :role"
        role, expected = f"{owner.url.database}_controller", TABLES
    else:
        asked = "SELECT table_name FROM information_schema.table_privileges WHERE grantee LIKE :role"
        role, expected = f"_{owner.url.database}_service_@%", WRITTEN
    with owner.connect() as connection:
        named = connection.execute(text(asked), {"role": role}).scalars()
        assert sorted(set(named)) == expected
