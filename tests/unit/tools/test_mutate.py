"""``tools/mutate``: verdicts, invalid tables, and the check that every mutant of the project still applies."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import mutate_app
import pytest
from _mutants import trial
from _mutants.table import Mutant, defects, tables
from _mutants.trial import Laboratory, TrialError, Verdict
from _servers import PrivateMariaDB

from pubsub_lib.errors import ConfigError
from tests.conftest import IN_CI

ROOT = Path(__file__).resolve().parent.parent.parent.parent

SHOP = """
def price(number):
    return number * 3


def stock():
    return 7
"""
TESTS = """
import threading

import pytest
import shop


def test_price():
    assert shop.price(2) == 6


def test_price_is_a_number():
    assert isinstance(shop.price(2), int)


def test_price_that_hangs_when_it_is_wrong():
    if shop.price(2) != 6:
        threading.Event().wait()


@pytest.mark.skip
def test_skipped():
    assert shop.price(2) == 6


@pytest.mark.slow
def test_slow():
    assert shop.price(2) == 6


@pytest.mark.long
def test_long():
    assert shop.price(2) == 6


class TestStock:
    pytestmark = pytest.mark.slow

    def test_stock(self):
        assert shop.stock() == 7
"""


def mutant(*tests: str, name: str = "dearer", before: str = "number * 3", after: str = "number * 4") -> Mutant:
    return Mutant(name, "shop.py", before, after, tests or ("tests/test_shop.py::test_price",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "shop.py").write_text(SHOP)
    (root / "tests" / "test_shop.py").write_text(TESTS)
    markers = 'markers = ["slow: x", "long: y"]'
    (root / "pyproject.toml").write_text(f'[tool.pytest.ini_options]\npythonpath = ["."]\n{markers}\n')
    return root


@pytest.fixture
def laboratory(project: Path) -> Iterator[Laboratory]:
    with Laboratory(project, jobs=1) as made:
        yield made


def outcomes(laboratory: Laboratory, *mutants: Mutant) -> list[Verdict]:
    return [each.outcome for each in laboratory.tried([("shop", one) for one in mutants], lambda trial: None)]


def test_each_mutant_gets_a_verdict_and_the_copy_is_restored(laboratory: Laboratory, project: Path) -> None:
    quick = mutant(name="dearer")
    blind = mutant("tests/test_shop.py::test_price_is_a_number", name="cheaper", after="number * 2")
    skipped = mutant("tests/test_shop.py::test_skipped", name="unseen")
    moved = mutant(name="moved", before="number + 3")
    again = mutant(name="again")
    assert outcomes(laboratory, quick, blind, skipped, moved, again) == [
        Verdict.CAUGHT, Verdict.SURVIVED, Verdict.NOT_RUN, Verdict.DOES_NOT_APPLY, Verdict.CAUGHT,
    ]  # fmt: skip
    laboratory.check(["tests/test_shop.py"])
    assert (project / "shop.py").read_text() == SHOP
    assert sorted(path.name for path in project.iterdir()) == ["pyproject.toml", "shop.py", "tests"]


def test_the_test_that_caught_a_mutant_is_named(laboratory: Laboratory) -> None:
    (tried,) = laboratory.tried([("shop", mutant())], lambda trial: None)
    assert tried.by == "tests/test_shop.py::test_price"


@pytest.mark.long
def test_hanging_tests_are_ended_and_not_counted_as_caught(project: Path) -> None:
    with Laboratory(project, jobs=1, timeout=3.0) as laboratory:
        hanging = mutant("tests/test_shop.py::test_price_that_hangs_when_it_is_wrong")
        assert outcomes(laboratory, hanging) == [Verdict.HUNG]


@pytest.mark.long
def test_tests_that_fail_without_a_mutant_are_an_error(project: Path) -> None:
    (project / "shop.py").write_text(SHOP.replace("* 3", "* 5"))
    with Laboratory(project, jobs=1) as laboratory, pytest.raises(TrialError, match="without any mutant"):
        laboratory.check(["tests/test_shop.py::test_price"])


@pytest.mark.long
def test_each_job_has_its_own_copy(project: Path) -> None:
    with Laboratory(project, jobs=2) as laboratory:
        mutants = [mutant(name=f"times_{number}", after=f"number * {number}") for number in range(4, 8)]
        assert outcomes(laboratory, *mutants) == [Verdict.CAUGHT] * 4


@pytest.mark.parametrize(
    ("status", "output", "outcome"),
    [
        (0, "1 passed in 0.1s", Verdict.SURVIVED),
        (0, "1 skipped in 0.1s", Verdict.NOT_RUN),
        (0, "1 passed, 1 skipped in 0.1s", Verdict.SURVIVED),
        (1, "FAILED tests/a.py::test_b - AssertionError\n1 failed in 0.1s", Verdict.CAUGHT),
        (2, "1 error during collection", Verdict.NOT_RUN),
        (4, "ERROR: not found: tests/a.py::test_c", Verdict.NOT_RUN),
        (5, "no tests ran in 0.1s", Verdict.NOT_RUN),
        (None, "", Verdict.HUNG),
    ],
)
def test_only_tests_that_failed_catch_a_mutant(status: int | None, output: str, outcome: Verdict) -> None:
    assert trial.judged(status, output)[0] is outcome


def test_judged_ignores_error_lines_of_a_log() -> None:
    output = "ERROR  shop:shop.py:3 broke\n== short test summary info ==\nFAILED tests/a.py::test_b - AssertionError\n"
    assert trial.judged(1, output) == (Verdict.CAUGHT, "tests/a.py::test_b")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "two words"}, "the name is not an identifier"),
        ({"path": "store.py"}, "there is no file store.py"),
        ({"before": "number"}, "'before' occurs 2 times in shop.py, not once; adapt the table"),
        ({"after": "number * ("}, "not valid Python"),
        ({"tests": ()}, "no test is named"),
        ({"tests": ("tests/test_shop.py",)}, "names a whole file"),
        ({"tests": ("tests/test_shop.py::test_gone",)}, "there is no test tests/test_shop.py::test_gone"),
        ({"tests": ("tests/gone.py::test_price",)}, "there is no file tests/gone.py"),
        ({"tests": ("tests/test_shop.py::test_slow",)}, "is marked slow"),
        ({"tests": ("tests/test_shop.py::test_long",)}, "is marked long"),
        ({"tests": ("tests/test_shop.py::TestStock::test_stock",)}, "is marked slow"),
        ({"marker": "oracle"}, "the marker 'oracle' is none of postgresql, mariadb"),
    ],
)
def test_defects_names_an_invalid_mutant(project: Path, change: dict[str, object], sentence: str) -> None:
    plain = {"name": "dearer", "path": "shop.py", "before": "number * 3", "after": "number * 4"}
    bad = Mutant(**{**plain, "tests": ("tests/test_shop.py::test_price[1]",), **change})  # type: ignore[arg-type]
    found = defects(project, {"shop": [bad]})
    assert len(found) == 1
    assert sentence in found[0]


def test_two_mutants_with_one_name_are_rejected(project: Path) -> None:
    assert defects(project, {"shop": [mutant()], "other": [mutant()]}) == ["dearer: two mutants have this name"]


def test_every_mutant_of_the_project_still_applies_and_its_tests_are_quick() -> None:
    areas = tables(ROOT)
    assert "store" in areas
    assert defects(ROOT, areas) == []


@pytest.fixture(scope="module")
def of_all_areas(request: pytest.FixtureRequest) -> Iterator[Laboratory]:
    """One copy of the tree, one process and this run's servers for all areas: making these takes seconds."""
    fixtures = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}
    assert fixtures.keys() == trial.SERVERS.keys()
    absent = {} if IN_CI else trial.missing_servers()
    servers = [request.getfixturevalue(fixture) for marker, fixture in fixtures.items() if marker not in absent]
    with Laboratory(ROOT, jobs=1, servers=servers) as made:
        yield made


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("area", tables(ROOT))
def test_every_mutant_of_the_project_is_caught(area: str, of_all_areas: Laboratory) -> None:
    absent = {} if IN_CI else trial.missing_servers()
    there = [(area, each) for each in tables(ROOT)[area] if each.marker not in absent]
    of_all_areas.check(trial.tests_of(there))
    tried = of_all_areas.tried(there, print)
    assert len(tried) == len(there)
    assert [each for each in tried if each.outcome is not Verdict.CAUGHT] == []


def test_a_mutant_whose_server_is_missing_is_not_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("no MariaDB found")

    monkeypatch.setattr(trial, "SERVERS", {"mariadb": (missing, PrivateMariaDB)})
    needs = msgspec.structs.replace(mutant(), marker="mariadb")
    (tried,) = trial.tried(project, [("shop", needs)], 1, lambda trial: None)
    assert (tried.outcome, tried.by) == (Verdict.NOT_RUN, "no MariaDB found")


@pytest.fixture
def of_the_project(project: Path, monkeypatch: pytest.MonkeyPatch, signal_handlers: None) -> Path:
    """The command, configured for the small project. It sets signal handlers."""
    (project / "tests" / "mutants").mkdir()
    (project / "tests" / "mutants" / "shop.py").write_text(
        "from _mutants.table import Mutant\n"
        'TEST = ("tests/test_shop.py::test_price_is_a_number",)\n'
        'MUTANTS = (Mutant("dearer", "shop.py", "number * 3", "number * 4", TEST, wrong="asks too much"),)\n'
    )
    monkeypatch.setattr(mutate_app, "ROOT", project)
    return project


@pytest.mark.long
def test_command_reports_survivors_by_its_exit_status(of_the_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate_app.main(["-f", "json"]) == mutate_app.NOT_ALL_CAUGHT
    out, err = capsys.readouterr()
    assert [(each["area"], each["name"], each["outcome"]) for each in json.loads(out)] == [
        ("shop", "dearer", "survived")
    ]
    assert "[1/1] survived" in err


@pytest.mark.long
def test_command_tries_other_tests(of_the_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate_app.main(["dearer", "--tests", "tests/test_shop.py"]) == mutate_app.ALL_CAUGHT
    assert [each.split() for each in capsys.readouterr().out.splitlines()] == [
        ["area", "mutants", "caught"], ["shop", "1", "1"], ["all", "1", "1"],
    ]  # fmt: skip


@pytest.mark.long
def test_command_shows_a_table_and_the_survivors(of_the_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate_app.main(["shop"]) == mutate_app.NOT_ALL_CAUGHT
    head, area, total, survivor = (each.split() for each in capsys.readouterr().out.splitlines())
    assert head == ["area", "mutants", "caught", "survived"]
    assert area == ["shop", "1", "0", "1"]
    assert total == ["all", "1", "0", "1"]
    assert survivor[:2] == ["survived", "shop/dearer"]


def test_command_lists_mutants(of_the_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate_app.main(["--list", "shop"]) == 0
    assert capsys.readouterr().out == "shop/dearer  shop.py  asks too much\n"
    assert mutate_app.main(["--list", "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "dearer"


def test_command_rejects_an_unknown_name(of_the_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate_app.main(["nothing"]) == 2
    assert "there is no mutant and no area 'nothing'" in capsys.readouterr().err
