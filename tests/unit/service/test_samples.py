"""The files that ``publisher-service`` prints for operators, and that an installation has without a clone."""

from pathlib import Path

import pytest

from pubsub_lib.service import samples
from pubsub_lib.service.main import DEFAULT_FILE, main

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("option", "name"), [("--sample-config", samples.CONFIG), ("--sample-unit", samples.UNIT)])
def test_command_prints_the_file_unchanged(option: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    output = capsys.readouterr()
    assert output.out == (ROOT / "etc" / name).read_text()
    assert output.err == ""


def test_unit_names_the_default_configuration_file() -> None:
    assert f" --config-file {DEFAULT_FILE}\n" in samples.unit()


def test_sample_with_the_required_options_passes_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.service.main._set_up_logging", lambda config_file, level: None)
    text = samples.config()
    for option, value in (
        ("store_url", f"sqlite:///{tmp_path}/net.db"),
        ("service_name", "api-1"),
        ("enable_pub_sub", "true"),
    ):
        (line,) = [each for each in text.splitlines() if each.startswith(f"#{option} =")]
        text = text.replace(f"\n{line}\n", f"\n{option} = {value}\n")
    path = tmp_path / "net.conf"
    path.write_text(text)
    assert main(["--check", "--config-file", str(path)]) == 0, capsys.readouterr().err
    assert "service 'api-1' sends by zmq_pubsub_driver" in capsys.readouterr().out


def test_printed_lines_end_like_those_of_a_file() -> None:
    for text in (samples.config(), samples.unit()):
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
