"""``pubsub-db resync``. test_verify.py tests its effect on a replica with a difference."""

from _processes import free_port

from tests.unit.cli.commands.test_verify import following
from tests.unit.cli.world import World


def test_resync_of_subscribed_topics_and_of_an_unknown_topic(world: World) -> None:
    with following(world, "a", "b") as (replica, url):
        assert world.run("resync", url, "a", "b", "-q").err == ""
        output = world.run("resync", url)
        assert (output.code, output.out) == (0, "")
        assert "reads all its topics again" in output.err
        world.run("resync", url, "a", "never").failed(
            1, "not subscribed to the topic 'never'; its topics are ['a', 'b', 'default']"
        )
        assert replica.status().counters.fulls["greeted"] == 3  # of a, b and the default topic


def test_resync_of_an_unreachable_replica_fails(small: World) -> None:
    port = free_port()
    small.run("resync", f"http://127.0.0.1:{port}").failed(3, "cannot be reached")
    for url in ("nonsense", "http://host", "http://host:port", "http://:80"):
        small.run("resync", url).failed(2, "is not the URL of a replica")
    small.run("resync", f"127.0.0.1:{port}", "").failed(2, "topic")
