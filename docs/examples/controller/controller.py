"""An SDN controller for one switch: it keeps the switch's flows equal to the ports and routes of the database.

python controller.py --config-file controller.conf --switch s1
"""

import argparse
import signal
import sys

from pubsub_lib import Event, Replica, Settings
from pubsub_lib.errors import ConfigError, PubSubError


class FakeSwitch:
    """A switch that prints each change of its flows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.flows: dict[str, int] = {}

    def add_flow(self, prefix: str, port: int) -> None:
        if self.flows.get(prefix) != port:
            self.flows[prefix] = port
            print(f"{self.name}: {prefix} -> {port}", flush=True)

    def remove_flow(self, prefix: str) -> None:
        if self.flows.pop(prefix, None) is not None:
            print(f"{self.name}: {prefix} -> nowhere", flush=True)


class Controller:
    """Programs a switch. A handler is called when an object changed; it reads the current state from the replica.

    So it does not matter if changes were conflated, or came twice after a failure of the switch. To be made once the
    replica is synced: what an earlier run left in the switch, and no route asks for, is removed first.
    """

    def __init__(self, replica: Replica, switch: FakeSwitch) -> None:
        self._replica = replica
        self._switch = switch
        replica.add_index("routes by port", "lroute", "port")
        for prefix in set(switch.flows) - {key for key, _ in replica.iterate("lroute")}:
            switch.remove_flow(prefix)
        replica.on(None, self.changed)  # one handler for both tables: one thread programs the switch

    def changed(self, change: Event) -> None:
        """A port or a route changed."""
        if change.table == "lroute":
            self.program(change.key)
        elif change.table == "lport":
            for prefix, _ in self._replica.lookup("routes by port", change.key):
                self.program(prefix)

    def program(self, prefix: str) -> None:
        """Make the flow of one prefix what it has to be."""
        route = self._replica.get("lroute", prefix)
        port = None if route is None else self._replica.get("lport", route["port"])
        if port is not None and port["switch"] == self._switch.name:
            self._switch.add_flow(prefix, port["number"])
        else:
            self._switch.remove_flow(prefix)


def main() -> int:
    """Run until SIGTERM or Ctrl-C; 2: the configuration is wrong, 1: anything else."""
    parser = argparse.ArgumentParser(description="Keeps a switch's flows equal to the database.")
    parser.add_argument("--config-file", required=True)
    parser.add_argument("--switch", required=True)
    given = parser.parse_args()
    # Blocked, also in the replica's threads, until sigwait takes them: so no signal is lost, whenever it comes.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        with Replica(Settings.from_file(given.config_file)) as replica:
            replica.wait_synced()
            Controller(replica, FakeSwitch(given.switch))
            signal.sigwait(ends)
    except PubSubError as error:
        print(f"controller: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
