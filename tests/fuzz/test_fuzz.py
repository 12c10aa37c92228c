"""Every reader of foreign bytes raises documented errors only: the corpora, and a short run of mutated inputs."""

import os
from pathlib import Path
from random import Random

import fuzz_app
import pytest
from _fuzz.mutation import changed_json, changed_msgpack
from _fuzz.runner import MAX_BYTES, MAX_FILES, fuzz, outcome_of, read_corpus
from _fuzz.target import Target

from tests.scale import scaled

SEED = int(os.environ["PUBSUB_TEST_SEED"])
MUTATED = {
    "codec": scaled(5_000),
    "hello_request": scaled(2_500),
    "replica_state": scaled(400),
    "sync_question": scaled(1_250),
    "sync_answer": scaled(1_250),
    "sync_stream": scaled(1_250),
    "announcement": scaled(1_250),
    "journal": scaled(50),
    "parquet": scaled(100),
    "ini": scaled(10),
    "json_lines": scaled(60),
    "store_rows": scaled(60),
}


@pytest.mark.parametrize("name", MUTATED)
def test_reader_raises_documented_errors_only(name: str) -> None:
    with fuzz_app.opened() as targets:
        (target,) = [each for each in targets if each.name == name]
        corpus = read_corpus(fuzz_app.CORPUS, target)
        given = len(corpus) + len(list(target.seeds()))
        done = fuzz(target, corpus, SEED, lambda executions: executions < given + MUTATED[name])
    assert [each.error for each in done.findings] == [], f"tools/fuzz {name} --seed {SEED}"
    assert done.executions == given + MUTATED[name]
    assert len(done.outcomes) > 2, "mutated inputs reach more than one place"


def test_every_target_has_a_corpus_and_a_number_of_executions() -> None:
    with fuzz_app.opened() as targets:
        names = {each.name for each in targets}
    assert names == set(MUTATED)
    kept = {each.name: list(each.iterdir()) for each in fuzz_app.CORPUS.iterdir()}
    assert set(kept) == names
    assert all(0 < len(each) <= MAX_FILES for each in kept.values())
    assert all(sum(file.stat().st_size for file in each) <= MAX_BYTES for each in kept.values())


def planted(data: bytes) -> str:
    if b"42" in data:
        raise KeyError("planted")
    if not data.startswith(b"["):
        raise ValueError(f"not a list: {data!r}")
    return "good"


TARGET = Target("planted", lambda: [b"[1, 2, 40]"], changed_json, planted, (ValueError,))


def test_planted_error_is_found_once_and_again_from_its_input_and_its_seed() -> None:
    target = Target("planted", lambda: [b"[41, 42]"], changed_json, planted, (ValueError,))
    done = fuzz(target, [], 7, lambda executions: executions < 500)
    (finding,) = done.findings
    assert "KeyError: 'planted'" in finding.error
    outcome, error = outcome_of(target, finding.data)
    assert outcome.startswith("KeyError at test_fuzz.py:")
    assert error
    assert fuzz(target, [], 7, lambda executions: executions < 500).outcomes == done.outcomes


def test_documented_error_is_no_finding_and_new_outcomes_join_the_corpus() -> None:
    done = fuzz(TARGET, [b"[7]"], 3, lambda executions: executions < 300)
    assert not [each for each in done.findings if "planted" not in each.error]
    assert done.outcomes["good"] > 100
    assert "ValueError: not a list: _" in done.outcomes
    assert any(not each.startswith(b"[") for each in done.added)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\xc0\xa1a", b'{"a": [1, {"b": null}]}'])
def test_mutation_changes_any_bytes(data: bytes) -> None:
    for change in (changed_msgpack, changed_json):
        made = {change(data, Random(seed)) for seed in range(50)}
        assert len(made) > 10


def test_command_reports_findings_and_saves_their_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz_app, "FINDINGS", tmp_path)
    monkeypatch.setattr(fuzz_app, "targets", lambda folder: [TARGET, Target("bad", lambda: [b"42"], *TARGET_PARTS)])
    assert fuzz_app.main(["--executions", "5", "--seed", "1", "bad"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("seed 1\nbad")
    assert "KeyError: 'planted'" in output
    (saved,) = (tmp_path / "bad").iterdir()
    assert fuzz_app.main(["bad", "--input", str(saved)]) == 1
    assert fuzz_app.main(["--executions", "1", "nothing"]) == 2
    assert "there is no target 'nothing'; the targets are planted, bad" in capsys.readouterr().err


TARGET_PARTS = (changed_json, planted, (ValueError,))
