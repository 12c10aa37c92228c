"""The plan of ``tools/chaos``: the same seed gives the same faults, which do not overlap, and each strikes once."""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import chaos_app
import pytest
from _chaos.brokers import BROKERS
from _chaos.draw import DRAWS, PAUSE, drawn
from _chaos.plan import BROKER, BROKERED, DATABASE, DEFAULT, DISK, KINDS, LIE, ZMQ, Cast, Fault, Kind
from _chaos.run import fingerprint
from _chaos.schedule import Schedule, Step
from _routes.drivers import DRIVERS
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]

casts = st.builds(
    Cast,
    services=st.integers(1, 3),
    workers=st.integers(1, 3),
    replicas=st.integers(1, 4),
    polling=st.integers(0, 2),
    topics=st.integers(1, 9),
    server=st.booleans(),
    driver=st.sampled_from(sorted(DRIVERS)),
)
some_kinds = st.sets(st.sampled_from(sorted(KINDS)), min_size=1)


@given(st.integers(0, 2**32), st.floats(1.0, 4000.0), st.integers(0, 80), casts, some_kinds)
def test_drawn_faults_are_possible_apart_and_repeatable(
    seed: int, seconds: float, number: int, cast: Cast, kinds: Collection[Kind]
) -> None:
    faults = drawn(seed, seconds, number, cast, kinds)
    assert faults == drawn(seed, seconds, number, cast, sorted(kinds))
    assert faults == sorted(faults)
    assert len(faults) <= number
    ends: dict[str, float] = {}
    for fault in faults:
        assert fault.kind in kinds
        assert fault.victim in cast.victims(fault.kind)
        assert 0 <= fault.at <= fault.end <= seconds
        assert fault.seconds <= DRAWS[fault.kind].longest
        assert fault.detail in DRAWS[fault.kind].details
        assert fault.at >= ends.get(fault.victim, -PAUSE) + PAUSE - 1e-9
        ends[fault.victim] = fault.end


def test_a_run_of_half_an_hour_has_its_thousand_faults_of_every_kind() -> None:
    faults = drawn(1, 1800.0, 1200, Cast(server=True))
    assert len(faults) == 1200
    assert {fault.kind for fault in faults} == set(DEFAULT) - {"slow"}
    assert {fault.victim for fault in faults} >= {*Cast().service_names, *Cast().replica_names, DATABASE}


@pytest.mark.parametrize("driver", sorted(BROKERED))
def test_the_broker_and_its_clients_are_victims(driver: str) -> None:
    cast = Cast(driver=driver)
    faults = drawn(1, 1800.0, 1200, cast)
    assert {fault.kind for fault in faults if fault.victim == BROKER} == {"kill", "pause"}
    assert cast.broker_users == (*cast.service_names, *(f"replica-{number}" for number in (1, 2, 3, 4)))
    assert {fault.victim for fault in faults if fault.kind == "cut"} == set(cast.broker_users)
    assert {fault.victim for fault in faults if fault.kind == "slow"} == set(cast.broker_users) - {*cast.service_names}


def test_drivers_with_a_broker_are_those_of_the_brokers() -> None:
    assert set(BROKERED) == set(BROKERS) == {name for name, each in DRIVERS.items() if each.server is not None}


@pytest.mark.parametrize(
    ("cast", "lacking"),
    [
        (Cast(), {"cut_database", "commit", "clock", "slow"}),
        (Cast(server=True), {"slow"}),
        (Cast(driver="nats"), {"cut_database", "commit", "clock", "imposter", "lie"}),
        (Cast(driver="pgnotify", server=True), {"cut", "slow", "storm", "imposter", "lie"}),
    ],
)
def test_kinds_without_a_victim_have_a_reason(cast: Cast, lacking: set[str]) -> None:
    assert {kind for kind in KINDS if cast.lack(kind)} == lacking
    assert {kind for kind in KINDS if not cast.victims(kind)} == lacking


def test_plan_of_zeromq_is_as_before_the_other_drivers() -> None:
    assert fingerprint(drawn(7, 60.0, 40, Cast(), (*DEFAULT, DISK))) == "03d7df47bfcd5e19"


def test_full_disks_destroy_evidence_so_that_only_an_option_plans_them() -> None:
    for options, planned in (([], False), (["--full-disks"], True), (["--only", "kill", "--full-disks"], True)):
        chosen = chaos_app.parse(["--minutes", "30", "--seed", "1", *options])
        assert ("disk" in {fault.kind for fault in chaos_app.planned(chosen).faults}) is planned
    assert chaos_app.parse(["--only", "kill", "--full-disks"]).only == ("kill", DISK)


def test_lies_set_bits_of_the_audit_so_that_only_an_option_plans_them() -> None:
    for options, lies in (([], False), (["--lies"], True), (["--only", "kill", "--lies"], True)):
        chosen = chaos_app.parse(["--minutes", "30", "--seed", "1", *options])
        found = {fault.detail for fault in chaos_app.planned(chosen).faults if fault.kind == LIE}
        assert found == ({"publisher", "worker"} if lies else set())


def test_driver_decides_the_database() -> None:
    chosen = chaos_app.planned(chaos_app.parse(["--driver", "pgnotify", "--seed", "1"]))
    assert (chosen.cast.server, chosen.cast.driver) == (True, "pgnotify")
    assert chaos_app.planned(chaos_app.parse([])).cast == Cast(server=False, driver=ZMQ)
    assert chaos_app.planned(chaos_app.parse(["--driver", "nats", "--database", "postgresql"])).cast.server


def test_another_seed_gives_other_faults() -> None:
    assert len({fingerprint(drawn(seed, 60.0, 20, Cast())) for seed in range(20)}) == 20


def test_a_cast_without_a_server_has_no_faults_of_a_server() -> None:
    assert all(DATABASE not in Cast(server=False).victims(kind) for kind in KINDS)


def test_plan_is_the_same_in_another_process() -> None:
    arguments = ["--minutes", "2", "--seed", "7", "--show-plan", "-f", "json"]
    command = [sys.executable, str(ROOT / "tools/chaos_app.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    plan = chaos_app.planned(chaos_app.parse(arguments))
    assert (shown["seed"], len(plan.faults)) == (7, 80)
    assert [Fault(**fault) for fault in shown["faults"]] == list(plan.faults)


@given(st.integers(0, 1000), st.lists(st.floats(0.0, 70.0), max_size=20))
def test_schedule_gives_each_step_once_in_order_and_when_due(seed: int, looks: list[float]) -> None:
    faults = drawn(seed, 60.0, 15, Cast())
    schedule = Schedule(faults)
    steps: list[Step] = []
    for now in sorted(looks):
        found = list(schedule.due(now))
        assert all(step.at <= now for step in found)
        steps += found
        assert schedule.next_at is None or schedule.next_at > now
    steps += schedule.due(60.0)
    assert schedule.next_at is None
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    for fault in faults:
        assert [step.begins for step in steps if step.fault == fault] == [True, False]


def test_a_fault_without_a_duration_begins_before_it_ends() -> None:
    fault = Fault(1.0, "kill", "service-1", 0.0)
    assert [step.begins for step in Schedule([fault]).due(1.0)] == [True, False]


def test_cast_gives_each_participant_a_name_a_service_and_topics() -> None:
    cast = Cast(services=2, workers=2, replicas=3, polling=1, topics=4)
    assert cast.worker_names == ("worker-1", "worker-2", "worker-3", "worker-4")
    assert [cast.service_of(worker) for worker in cast.worker_names] == [*["service-1"] * 2, *["service-2"] * 2]
    assert [cast.polls(replica) for replica in cast.replica_names] == [False, False, False, True]
    assert [cast.topics_of(replica) for replica in cast.replica_names] == [
        (), ("topic-1", "topic-3"), (), ("topic-2", "topic-4"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--minutes", "0"], "argument --minutes: '0' is not a number of minutes from 0.05 to 10000"),
        (["--minutes", "nan"], "argument --minutes: 'nan' is not a number of minutes from 0.05 to 10000"),
        (["--seed", "x"], "argument --seed: 'x' is not a whole number from 0 on"),
        (["--only", "kill,flood"], "argument --only: 'flood' is none of kill, pause, cut, cut_database, commit,"),
        (["--only", "clock"], "with the kind clock no audit is possible, because journals have wrong times"),
        (["--storm-topics", "20000"], "argument --storm-topics: 20000 is more than 10000"),
        (["--database", "oracle"], "argument --database: invalid choice: 'oracle'"),
        (["--driver", "amqp"], "argument --driver: invalid choice: 'amqp'"),
        (["--driver", "pgnotify", "--database", "sqlite"], "--driver pgnotify needs --database postgresql"),
        (["--no-audit", "--out", "x"], "--out is an option without --no-audit"),
    ],
)
def test_invalid_option_is_one_sentence(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        chaos_app.main(arguments)
    assert caught.value.code == 2
    output = capsys.readouterr().err
    assert output.startswith(f"tools/chaos: {reason}")
    assert output.count("\n") == 1
