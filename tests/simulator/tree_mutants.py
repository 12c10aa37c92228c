"""Mistakes in relays and in the judgement of their answers (rules R1 to R6), caught by runs with relays."""

from typing import Any
from weakref import WeakSet

import msgspec

from pubsub_lib.core import answer_time
from pubsub_lib.core.answer_time import AnswerTime, Verdict
from pubsub_lib.core.freshness import NEVER_YET
from pubsub_lib.core.model import EMPTY, Delta, Full
from pubsub_lib.core.parents import Parents
from pubsub_lib.core.relay_contents import RelayContents
from pubsub_lib.core.relaying import Relay, RelayStep
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.step_result import NOTHING
from tests.simulator.registry import Patch, mutant

LAST_TURN = 2**62
"""Later than all turns of a run."""


def _of_another_time(**change: Any) -> list[Patch]:
    """A relay's answer is taken for one of another time. ``change``: functions of the scheduler and the time."""
    time_of = answer_time.time_of

    def changed(answer: Any, chain: Any, syncs: Any, turn: int, now: float) -> AnswerTime:
        at = time_of(answer, chain, syncs, turn, now)
        if not at.relayed:
            return at
        return msgspec.structs.replace(at, **{name: value(syncs, at) for name, value in change.items()})

    return [(answer_time, "time_of", changed)]


def _used_where(wrong: Any) -> list[Patch]:
    """An answer is used although its verdict is another one."""
    judged = answer_time._verdict

    def _verdict(chain: Any, fresh: Any, part: Any, at: Any, begun: float) -> Verdict:
        verdict = judged(chain, fresh, part, at, begun)
        return Verdict.USED if part is not None and wrong(verdict, part) else verdict

    return [(answer_time, "_verdict", _verdict)]


# -- rules R1 to R4 ----------------------------------------------------------------------------------------------------


@mutant("a relay's answer counts as of the question, whatever its age", trees=True)
def answer_without_age() -> list[Patch]:
    return _of_another_time(earliest=lambda syncs, at: syncs.begun)


@mutant("a relay's hello has no age", trees=True)
def relay_without_age() -> list[Patch]:
    hello = Relay.hello

    def young(self: Any, *arguments: Any, **more: Any) -> Any:
        return msgspec.structs.replace(hello(self, *arguments, **more), age=0.0, least_age=0.0)

    return [(Relay, "hello", young)]


@mutant("an answer that shows another history is used as a delta", trees=True)
def history_of_answers_ignored() -> list[Patch]:
    return _used_where(lambda verdict, part: verdict is Verdict.ANOTHER_HISTORY)


@mutant("a full answer counts although it is older than what the replica has", trees=True)
def older_full_answer_used() -> list[Patch]:
    return _used_where(lambda verdict, part: verdict is Verdict.REFUSED and isinstance(part, Full))


@mutant("a delta counts although it is older than the proof", trees=True)
def older_delta_used() -> list[Patch]:
    return _used_where(lambda verdict, part: verdict is Verdict.REFUSED and not isinstance(part, Full))


@mutant("an older answer drops what was received since its moment", trees=True)
def received_since_forgotten() -> list[Patch]:
    return _of_another_time(turn=lambda syncs, at: syncs.turn)


def _of_begin(value: Any) -> list[Patch]:
    """The begin of a delta counts in another way. ``value``: its time, from that of the answer and the covered turn."""
    return [(answer_time, "_of_begin", value)]


@mutant("the begin of a delta drops all that was received before it", trees=True)
def begin_forgets() -> list[Patch]:
    return _of_begin(lambda at, covered: AnswerTime(NEVER_YET, NEVER_YET, LAST_TURN, at.applied, relayed=True))


@mutant("a delta counts up to any head that a hello named", trees=True)
def begin_up_to_any_head() -> list[Patch]:
    reached = answer_time.reach

    def reach(chain: Any, fresh: Any, delta: Any, at: Any) -> Any:
        heads = [link.point for link in delta.links if link.point in fresh.pending]
        beyond = [head for head in heads if head.position > chain.known_position]
        return beyond[-1] if beyond else reached(chain, fresh, delta, at)

    return [(answer_time, "reach", reach)]


# -- relays ------------------------------------------------------------------------------------------------------------


@mutant("a relay sends links on before it has applied them", trees=True)
def sent_before_applied() -> list[Patch]:
    feed = Relay.feed

    def _feed(self: Any, envelope: Any, now: float) -> RelayStep:
        step = feed(self, envelope, now)
        links = [message.link for message in envelope.messages if message.parts == 1]
        return msgspec.structs.replace(step, envelopes=self.sequencer.publish(links, now) if links else step.envelopes)

    return [(Relay, "feed", _feed)]


def _sends(passed: Any) -> list[Patch]:
    """A relay sends only some of the links that it applies. ``passed``: those, of the relay and the links."""
    publish = Relay._publish
    return [(Relay, "_publish", lambda self, links, now: publish(self, passed(self, links), now))]


@mutant("a relay sends no links on, so that those below get them by deltas alone", trees=True)
def relay_sends_nothing() -> list[Patch]:
    return _sends(lambda relay, links: [])


@mutant("a relay sends no links of some topics on", trees=True)
def relay_skips_topics() -> list[Patch]:
    return _sends(lambda relay, links: [link for link in links if link.topic != "t1"])


@mutant("a relay sends no links on after it has changed its parent", trees=True)
def relay_mute_after_move() -> list[Patch]:
    changed, mute = Relay.parent_changed, WeakSet[Relay]()

    def parent_changed(self: Relay) -> None:
        mute.add(self)
        changed(self)

    return [(Relay, "parent_changed", parent_changed), *_sends(lambda relay, links: [] if relay in mute else links)]


@mutant("a replica does not use the links that a relay sends", trees=True)
def links_of_relays_ignored() -> list[Patch]:
    feed = ReplicaState.feed

    def _feed(self: Any, envelope: Any, now: float) -> Any:
        ignored = envelope.messages and envelope.service.startswith("relay")
        return NOTHING if ignored else feed(self, envelope, now)

    return [(ReplicaState, "feed", _feed)]


@mutant("a relay does not greet those that connect to it", trees=True)
def relay_sends_no_greeting() -> list[Patch]:
    connected = Sequencer.connected

    def _connected(self: Any, now: float) -> None:
        if not self.service.startswith("relay"):
            connected(self, now)

    return [(Sequencer, "connected", _connected)]


@mutant("a relay answers that a topic which it does not follow was never written", trees=True)
def empty_for_unknown() -> list[Patch]:
    requested, hello = Relay.hello_requested, Relay.hello
    asked: dict[str, tuple[str, ...]] = {}

    def _requested(self: Any, ask: Any, now: float) -> Any:
        asked[ask.nonce] = ask.topics
        return requested(self, ask, now)

    def _hello(self: Any, sequences: Any, now: float, *, nonce: str, goodbye: bool) -> Any:
        made = hello(self, sequences, now, nonce=nonce, goodbye=goodbye)
        return msgspec.structs.replace(made, heads={**dict.fromkeys(asked.get(nonce, ()), EMPTY), **made.heads})

    return [(Relay, "hello_requested", _requested), (Relay, "hello", _hello)]


@mutant("a relay answers a topic that it is about to replace", trees=True)
def served_while_frozen() -> list[Patch]:
    def serves(self: Any, topic: str) -> bool:
        tracker = self.state.tracker
        return topic in tracker.topics and tracker.chain(topic).known is not None

    return [(RelayContents, "serves", serves)]


@mutant("a relay's answer lacks its last link", trees=True)
def answer_without_last_link() -> list[Patch]:
    answer = RelayContents.answer

    def shorter(part: Any) -> Any:
        if not isinstance(part, Delta) or not part.links:
            return part
        return msgspec.structs.replace(part, links=part.links[:-1], head=part.links[-1].prev)

    def _answer(self: Any, question: Any, now: float) -> Any:
        made = answer(self, question, now)
        chains = {} if made is None else {name: shorter(part) for name, part in made.chains.items()}
        return made and msgspec.structs.replace(made, chains=chains)

    return [(RelayContents, "answer", _answer)]


@mutant("two relays may listen to each other", trees=True, few=True)
def loops_stay() -> list[Patch]:
    return [(Relay, "path", lambda self, now: ())]


@mutant("a parent is never left because of staleness", trees=True)
def parent_never_left() -> list[Patch]:
    return [(Parents, "check", lambda self, staleness, now: False)]
