"""Lies by hellos. Each function sends one hello of a liar to a replica, as a broadcast or as a reply."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.core.envelope import Hello
from pubsub_lib.core.model import ALL, Head, Point
from simulator.forgery import digest_of
from simulator.invariants import content_of

if TYPE_CHECKING:
    from simulator.liar import Liar
    from simulator.replica import Replica


def withhold(liar: "Liar", replica: "Replica") -> None:
    """The heads are the points that the replica has: no link seems to be missing, and its lies are proved."""
    heads = _heads(replica)
    liar.send_hello(replica, Hello({}, heads, _store(replica), 0.0, _nonce(liar, replica)))


def claim_ahead(liar: "Liar", replica: "Replica") -> None:
    """The heads are beyond those of the store."""
    ahead = liar.rng.choice((1, 5, 1000))
    _claim(liar, replica, lambda point: Point(point.position + ahead, liar.rng.getrandbits(63)))


def claim_another(liar: "Liar", replica: "Replica") -> None:
    """The heads are at the replica's positions, with other nonces: as after a restore."""
    _claim(liar, replica, lambda point: Point(point.position, liar.rng.getrandbits(63)))


def claim_behind(liar: "Liar", replica: "Replica") -> None:
    """The heads are behind the replica's points, in a reading of now: as after a restore."""
    _claim(liar, replica, lambda point: Point(point.position // 2, liar.rng.getrandbits(63)))


def claim_digest(liar: "Liar", replica: "Replica") -> None:
    """The heads are the replica's points, with wrong digests or counts."""
    wrong = liar.rng.choice(("count", "digest"))
    heads = {
        topic: msgspec.structs.replace(head, **{wrong: getattr(head, wrong) + 1})
        for topic, head in _heads(replica).items()
    }
    liar.send_hello(replica, Hello({}, heads, _store(replica), 0.0, _nonce(liar, replica)))


def claim_covered(liar: "Liar", replica: "Replica") -> None:
    """The heads are the points that the replica has, and the store's point is beyond those that the store has."""
    store = liar.world.database.store.state.point
    beyond = Point(store.position + liar.rng.choice((1, 20, 2**62)), store.nonce)
    liar.send_hello(replica, Hello({}, _heads(replica), beyond, 0.0, _nonce(liar, replica)))


def _claim(liar: "Liar", replica: "Replica", lie: Callable[[Point], Point]) -> None:
    heads = {topic: msgspec.structs.replace(head, point=lie(head.point)) for topic, head in _heads(replica).items()}
    nonce = liar.rng.choice(("", _nonce(liar, replica)))
    liar.send_hello(replica, Hello({}, heads, lie(_store(replica)), 0.0, nonce))


def _heads(replica: "Replica") -> dict[str, Head]:
    """What the replica has, as heads. Of a replica of everything, the topics' heads at the point of the store."""
    tracker = replica.replica_state.tracker
    if ALL in tracker.topics:
        store = replica.world.database.store
        topics = dict.fromkeys(replica.cache.topics())
        return {topic: Head(store.head(topic).point, *digest_of(content_of(replica, topic))) for topic in topics}
    chains = [tracker.chain(name) for name in tracker.topics]
    return {at.name: Head(at.known, *digest_of(content_of(replica, at.name))) for at in chains if at.known is not None}


def _store(replica: "Replica") -> Point:
    """The newest point that the replica has."""
    tracker = replica.replica_state.tracker
    points = [tracker.chain(name).known for name in tracker.topics]
    return max((point for point in points if point is not None), key=lambda at: at.position, default=Point(0, 0))


def _nonce(liar: "Liar", replica: "Replica") -> str:
    """That of the replica's last hello request."""
    return liar.world.network.last_nonces.get(replica.name, "")
