"""``pubsub-db top`` where it cannot run; tests/e2e/test_cli_look.py runs it in real terminals."""

from tests.unit.cli.world import World


def test_it_needs_a_terminal(world: World) -> None:
    world.run("top").failed(2, "this needs a terminal", "watch")


def test_bad_options(small: World) -> None:
    small.run("top", "--interval", 0).failed(2, "--interval 0.0")
    small.run("top", "").failed(2, "topic")
