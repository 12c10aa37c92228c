"""``pubsub-db resync``; what it does is in test_verify.py, against a replica that needs it."""

from _processes import free_port

from tests.unit.cli.commands.test_verify import following
from tests.unit.cli.world import World


def test_topics_that_are_followed_and_one_that_is_not(world: World) -> None:
    with following(world, "a", "b") as (replica, url):
        assert world.run("resync", url, "a", "b", "-q").err == ""
        said = world.run("resync", url)
        assert (said.code, said.out) == (0, "")
        assert "reads everything that it follows anew" in said.err
        world.run("resync", url, "a", "never").failed(
            1, "not subscribed to the topic 'never'; its topics are ['a', 'b', 'default']"
        )
        assert replica.status().counters.fulls["greeted"] == 3  # of a, b and the default topic


def test_who_cannot_be_asked(small: World) -> None:
    port = free_port()
    small.run("resync", f"http://127.0.0.1:{port}").failed(3, "cannot be reached")
    for url in ("nonsense", "http://host", "http://host:port", "http://:80"):
        small.run("resync", url).failed(2, "is no URL of a replica")
    small.run("resync", f"127.0.0.1:{port}", "").failed(2, "topic")
