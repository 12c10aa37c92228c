"""The parser of ``pubsub-audit``: wrong usage is 64, with the usage and one sentence."""

import pytest

from pubsub_lib.audit.arguments import Parser, add_output_options


def parser() -> Parser:
    made = Parser(prog="pubsub-audit")
    add_output_options(made)
    return made


def test_output_options_have_defaults() -> None:
    options = parser().parse_args([])
    assert (options.format, options.debug) == ("table", False)


def test_wrong_usage_is_64(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["-f", "xml"])
    assert ended.value.code == 64
    output = capsys.readouterr()
    assert output.out == ""
    usage, sentence = output.err.splitlines()
    assert usage.startswith("usage: pubsub-audit")
    assert sentence.startswith("pubsub-audit: argument -f/--format: invalid choice: 'xml'")
