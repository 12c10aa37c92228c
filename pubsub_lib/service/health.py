"""Whether the service is ready, and which of its threads hang."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.publisher.admission import Admission
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.service.commit_server import CommitServer
from pubsub_lib.service.leases import Leases
from pubsub_lib.service.recount import StoreRecount
from pubsub_lib.service.step_times import longest_step, max_quiet
from pubsub_lib.settings import StoreSettings
from pubsub_lib.threads.periodic_thread import PeriodicThread

MAX_TOPICS: Final = 5
"""Maximum number of unrepaired topics that ``problems`` names."""


def entry_problems(leases: Leases, now: float) -> list[str]:
    """Why replicas may not find the service."""
    return [] if leases.registered(now) else ["the entry in the directory is not renewed"]


def sending_problems(*, hangs: bool, admission: Admission | None, now: float) -> list[str]:
    """Why replicas may receive nothing from the service. ``hangs``: the driver's sending thread stands still."""
    found = ["the thread that sends messages hangs"] if hangs else []
    if admission is not None and admission.is_stale(now):
        found.append("the clients and their topics are not being read")
    return found


def hanging(busy: Mapping[str, float], maximum: float) -> list[str]:
    """The threads that are in one step for longer than ``maximum`` seconds, one sentence each."""
    return [
        f"the thread {name!r} has been hanging for {taken:.0f} s" for name, taken in busy.items() if taken > maximum
    ]


class Health:
    """Reads the parts of a service and changes none of them. Any thread; no method blocks."""

    def __init__(
        self,
        loops: Mapping[str, PeriodicThread],
        publisher: Publisher,
        commits: CommitServer | None,
        leases: Leases,
        recount: StoreRecount,
        service: ServiceSettings,
        store: StoreSettings,
        max_sending: float,
    ) -> None:
        """The times of ``service`` and ``store`` bound how long a step may take, and ``max_sending`` how long the
        driver's sending thread may stand still.
        """
        self._loops = loops
        self._publisher = publisher
        self._commits = commits
        self._leases = leases
        self._recount = recount
        self._lease = service.lease
        self._max_quiet = max_quiet(service.lease, service.follow_interval)
        self._max_busy = longest_step(store)
        self._max_sending = max_sending

    def adjust(self, follow_interval: float) -> None:
        """The changelog is read every ``follow_interval`` seconds from now on."""
        self._max_quiet = max_quiet(self._lease, follow_interval)

    def problems(self) -> list[str]:
        """The reasons why the started service is not ready, one sentence each."""
        now = time.monotonic()
        found = entry_problems(self._leases, now)
        if now - self._loops["changelog"].last_success > self._max_quiet:
            found.append("the changelog is not being followed")
        hangs = self._publisher.busy(now)["sending"] > self._max_sending
        found += sending_problems(hangs=hangs, admission=self._publisher.admission, now=now)
        found += [
            f"objects of the topic {topic!r} were altered in the database without the library and could not be "
            f"repaired; see `pubsub-db verify {topic}`, and run `pubsub-db accept --topic {topic}` to accept the "
            "current rows"
            for topic in self._recount.unrepaired()[:MAX_TOPICS]
        ]
        return found + self._leases.name_conflicts.problems()

    def stuck(self) -> Sequence[str]:
        """The hanging threads, one sentence each."""
        now = time.monotonic()
        busy = {name: loop.running_for(now) for name, loop in self._loops.items()}
        busy.update(self._publisher.busy(now))
        if self._commits is not None:
            busy["commits"] = self._commits.running_for(now)
        return hanging(busy, self._max_busy)
