"""OVSDB with the package ovs and its IDL, which keeps a copy of the table in every client: transact and monitor."""

import importlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from _children import Children

from _bench.e2e import downloads, packages
from _bench.e2e.plan import Cell, Changes
from _bench.e2e.program import running
from _bench.e2e.seen import Seen
from _bench.e2e.side import Facts, Put
from _bench.measure import BenchError

SCHEMA = {
    "name": "Bench",
    "version": "1.0.0",
    "tables": {"Object": {"columns": {"key": {"type": "string"}, "value": {"type": "string"}}, "isRoot": True}},
}
COMMIT = {"op": "commit", "durable": True}
LACKS = (
    "gap detection, a comparison of a client's copy, and a bound of its staleness; durability, except to a transaction "
    "that asks for it; resync without a full copy, except from a cluster"
)


class OvsdbSession:
    """One server."""

    def __init__(self, idl: Any, poller: Any, port: int) -> None:
        self._idl = idl
        self._poller = poller
        self._port = port

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A client with a copy, as usual; it finds rows by their key in a dict."""
        rows: dict[str, Any] = {}

        def changed(_: str, row: Any) -> None:
            rows[row.key] = row

        idl = self._connected(changed)

        def put(changes: Changes) -> None:
            transaction = self._idl.Transaction(idl)
            for key, value in changes:
                row = rows.get(key)
                if row is None:
                    row = transaction.insert(idl.tables["Object"])
                    row.key = key
                row.value = msgspec.json.encode(value).decode()
            transaction.add_op(COMMIT)
            status = transaction.commit_block()
            if status != self._idl.Transaction.SUCCESS:
                raise BenchError(f"a transaction of OVSDB ended as {status}: {transaction.get_error()}")

        yield put
        idl.close()

    def watch(self, seen: Seen) -> None:
        """A copy of the table, with a handler."""

        def changed(_: str, row: Any) -> None:
            seen.change(row.key, msgspec.json.decode(row.value))

        idl = self._connected(changed)
        seen.connected()
        while not seen.done:
            if not idl.run():
                self._wait(idl)
        idl.close()

    def _connected(self, changed: Callable[[str, Any], None]) -> Any:
        class Copy(self._idl.Idl):  # type: ignore[misc,name-defined]
            def notify(self, event: str, row: Any, updates: object = None) -> None:
                changed(event, row)

        helper = self._idl.SchemaHelper(schema_json=SCHEMA)
        helper.register_all()
        idl = Copy(f"tcp:127.0.0.1:{self._port}", helper)
        while not idl.has_ever_connected():
            if not idl.run():
                self._wait(idl)
        return idl

    def _wait(self, idl: Any) -> None:
        poller = self._poller.Poller()
        idl.wait(poller)
        poller.block()


class Ovsdb:
    """The side. Raises LeftOutError."""

    def __init__(self) -> None:
        self._server = packages.server("openvswitch-common", ["ovsdb-server", "ovsdb-tool"])
        _, version = downloads.client("ovs", "ovs")
        self._modules = importlib.import_module("ovs.db.idl"), importlib.import_module("ovs.poller")
        durable = "durable: true: fsync before a transaction returns"
        self.facts = Facts("ovsdb", f"{version} (IDL)", durable, LACKS, self._server.version)

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[OvsdbSession]:
        """A new server with an empty database."""
        with running(children, self._server, "ovsdb-server", self._command) as port:
            yield OvsdbSession(*self._modules, port)

    def _command(self, folder: Path, port: int) -> list[str]:
        (folder / "schema").write_text(json.dumps(SCHEMA))
        create = [str(self._server.programs["ovsdb-tool"]), "create", str(folder / "db"), str(folder / "schema")]
        subprocess.run(create, env=self._server.variables, check=True)
        own = [f"--unixctl={folder}/control", "--no-chdir", "-vconsole:warn", "-vsyslog:off", "-vfile:off"]
        return [str(folder / "db"), f"--remote=ptcp:{port}:127.0.0.1", *own]
