"""``pubsub-db help``."""

import pytest

from tests.unit.cli.world import World


@pytest.mark.parametrize("name", ["ls", "clients add", "help", "complete"])
def test_help_of_a_command_is_that_of_its_option(name: str, small: World) -> None:
    output = small.run("help", *name.split())
    assert output.code == 0
    assert output.out.startswith(f"usage: pubsub-db {name} ")
    assert small.run(*name.split(), "--help").out == output.out


def test_help_of_a_group_proposes_a_command(small: World) -> None:
    small.run("help", "clients").failed(2, "there is no command 'clients'; did you mean")
