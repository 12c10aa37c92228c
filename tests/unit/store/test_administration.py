"""Reading the schema's revision, and dropping only the library's tables."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from pubsub_lib.errors import SchemaError, StoreUnavailable
from pubsub_lib.store import Store, administration, url
from pubsub_lib.store.schema import REVISION
from tests.unit.store.conftest import SETTINGS

pytestmark = pytest.mark.empty_database


def test_revision_of_a_database(database_url: str) -> None:
    assert administration.revision(database_url, settings=SETTINGS) is None
    Store(database_url, settings=SETTINGS).close()
    assert administration.revision(database_url, settings=SETTINGS) == REVISION


def test_revision_creates_no_file(tmp_path: Path) -> None:
    assert administration.revision(f"sqlite:///{tmp_path}/net.db") is None
    assert list(tmp_path.iterdir()) == []


def test_drop_removes_only_library_tables(database_url: str) -> None:
    with pytest.raises((SchemaError, StoreUnavailable), match=r"holds no tables|does not exist"):
        administration.drop(database_url, settings=SETTINGS)
    with Store(database_url, settings=SETTINGS) as store, store.transaction() as tx:
        tx.set("t", "k", 1)
    engine = create_engine(url.parse(database_url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE mine (id INTEGER)"))
        connection.execute(text("UPDATE pubsub_version SET version_num = '0001'"))  # an older schema is ours, too
    assert len(administration.drop(database_url, settings=SETTINGS)) == 10
    assert inspect(engine).get_table_names() == ["mine"]
    engine.dispose()
    with Store(database_url, settings=SETTINGS) as store:
        assert list(store.objects()) == []


def test_drop_rejects_newer_schema(sqlite_url: str) -> None:
    Store(sqlite_url).close()
    engine = create_engine(url.parse(sqlite_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE pubsub_version SET version_num = '9999'"))
    with pytest.raises(SchemaError, match="9999"):
        administration.drop(sqlite_url)
    assert administration.revision(sqlite_url) == "9999"
    engine.dispose()
