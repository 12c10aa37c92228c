"""Mistakes in announcements: what is kept of them, for how long, what is sent upwards, and the tree made of them."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"pubsub_lib/{path}.py", before, after, (f"tests/unit/{tests}.py::{test}",), wrong=wrong)


REGISTRY = partial(_mutant, "sync/agent_registry", "sync/test_agent_registry")
MERGED = partial(_mutant, "sync/agents", "sync/test_agent_registry")
ASKED = partial(_mutant, "sync/agents", "cli/test_agents_client")
WIRE = partial(_mutant, "sync/agents", "sync/test_agents")
ROUTE = partial(_mutant, "sync/agents_server", "sync/test_agents_server")
ANNOUNCER = partial(_mutant, "sync/announcer", "sync/test_announcer")
PARENTS = partial(_mutant, "replica/parent_subscriber", "replica/test_parent_subscriber")
TREE = partial(_mutant, "sync/agent_tree", "sync/test_agent_tree")
CLIENT = partial(_mutant, "cli/agents_client", "cli/test_agents_client")

MUTANTS = (
    REGISTRY(
        "agents_stay_for_ever",
        "if each.until <= now]",
        "if False]",
        "test_agent_disappears_after_three_of_its_intervals",
        "killed agents are listed until the service restarts, and fill its places",
    ),
    REGISTRY(
        "agent_that_leaves_stays",
        "            if announced.leaving:\n                return True\n",
        "",
        "test_agent_that_leaves_disappears_at_once",
        "each restart of an agent lists it twice",
    ),
    REGISTRY(
        "age_of_an_agent_stands_still",
        "age=agent.age + max(0.0, now - entry.at))",
        "age=agent.age)",
        "test_age_grows_until_the_next_announcement",
        "an agent that was cut off looks as if it had announced itself just now",
    ),
    REGISTRY(
        "agents_pretend_their_own_age",
        "own = msgspec.structs.replace(announced.agent, age=0.0, hops=0)",
        "own = announced.agent",
        "test_sender_alone_cannot_pretend_to_be_old_or_far_away",
        "a hostile age displaces the true announcement of the same agent",
    ),
    REGISTRY(
        "agents_go_round_between_relays",
        " if each.hops < MAX_HOPS)",
        ")",
        "test_relays_that_announce_themselves_to_one_another_end",
        "an agent that ended is passed between two relays for ever",
    ),
    REGISTRY(
        "hops_are_not_counted",
        "hops=each.hops + 1)",
        "hops=each.hops)",
        "test_announcement_of_a_relay_replaces_all_that_was_below_it",
        "an agent that ended is passed between two relays for ever",
    ),
    REGISTRY(
        "relay_is_below_itself",
        "            if agent.uuid == self.own:\n                continue",
        "            if False:\n                continue",
        "test_relays_that_announce_themselves_to_one_another_end",
        "a relay lists itself as an agent below itself",
    ),
    REGISTRY(
        "number_of_agents_is_not_bounded",
        "self._count + len(agents) < self._max_agents and ",
        "",
        "test_number_of_agents_is_bounded",
        "a hostile host fills the memory of the service with small agents",
    ),
    REGISTRY(
        "bytes_of_agents_are_not_bounded",
        " and self._size + size + needed <= self._max_bytes",
        "",
        "test_size_of_agents_is_bounded",
        "a hostile host fills the memory of the service with large agents",
    ),
    REGISTRY(
        "places_of_agents_are_not_returned",
        "            self._size -= before.size\n",
        "            pass\n",
        "test_size_of_agents_is_bounded",
        "after some hours a service takes no agent any more",
    ),
    REGISTRY(
        "outdated_agents_keep_their_places",
        "            if made is None or made.left_out > announced.left_out:\n",
        "            if False:\n",
        "test_relay_gets_the_places_of_those_that_disappeared",
        "agents are left out although there are places",
    ),
    MERGED(
        "older_announcement_wins",
        "each.age < found[each.uuid].age",
        "each.age > found[each.uuid].age",
        "test_agent_that_changed_its_relay_is_there_once_by_its_last_announcement",
        "an agent is shown below the relay that it has left",
    ),
    WIRE(
        "names_of_agents_are_not_checked",
        "            for kind, name in _names(agent):\n                check_name(kind, name)\n",
        "            pass\n",
        "test_announcement_with_a_wrong_member_is_refused",
        "names that no agent can have are kept and listed",
    ),
    WIRE(
        "agents_below_are_not_checked",
        "    _check((found.agent, *found.below), ",
        "    _check((found.agent,), ",
        "test_announcement_with_a_wrong_member_is_refused",
        "a hostile relay announces names that no agent can have",
    ),
    WIRE(
        "size_of_an_agent_is_not_checked",
        "        if len(encode(msgspec.structs.replace(agent, age=0.0, hops=0))) > MAX_AGENT_BYTES:\n            raise",
        "        if False:\n            raise",
        "test_sizes_are_bounded",
        "one agent takes the places of a thousand",
    ),
    WIRE(
        "large_agent_is_announced_whole",
        "        agent = msgspec.structs.replace(agent, topics=agent.topics[:-1])\n",
        "        break\n",
        "test_agent_is_made_to_fit_by_leaving_topics_out",
        "an agent with long topics is refused by every service",
    ),
    ROUTE(
        "full_service_accepts",
        "            if not self._registry.receive(announced, self._now()):",
        "            if self._registry.receive(announced, self._now()) is None:",
        "test_agent_without_a_place_gets_503",
        "an agent without a place does not try the next server",
    ),
    ROUTE(
        "service_hides_what_is_above_it",
        "[self._registry.own, *self._above()]",
        "[self._registry.own]",
        "test_announced_agents_are_listed",
        "a circle of three relays is not noticed",
    ),
    ANNOUNCER(
        "announcer_ignores_circles",
        "                if own in above:\n",
        "                if False:\n",
        "test_answer_of_another_program_is_a_failure",
        "relays that name each other hide their agents from the service above",
    ),
    ANNOUNCER(
        "many_agents_announce_themselves_together",
        "            first = now + self._interval * self._rng.uniform(0.0, FIRST_PART)\n",
        "            first = now\n",
        "test_many_agents_that_start_together_spread_their_announcements",
        "a thousand agents that start together are refused",
    ),
    ANNOUNCER(
        "announcer_stays_with_a_failed_server",
        "                self._urls = [*self._urls[1:], self._urls[0]]\n",
        "                pass\n",
        "test_next_server_is_asked_when_one_fails_and_stays_the_first",
        "agents disappear when the first relay fails",
    ),
    ANNOUNCER(
        "server_that_hangs_stays_the_first",
        "                if time.monotonic() >= deadline:\n                    break",
        "                if False:\n                    break",
        "test_server_that_hangs_takes_one_turn_and_is_asked_last",
        "with two URLs, the second one is never asked in time",
    ),
    ANNOUNCER(
        "closed_agent_does_not_leave",
        "leaving=True)",
        "leaving=False)",
        "test_agent_is_announced_until_it_leaves",
        "each restart of an agent lists it twice",
    ),
    ANNOUNCER(
        "close_waits_for_a_running_announcement",
        "        if call is not None:\n            call.end()\n",
        "",
        "test_close_ends_a_running_announcement",
        "a replica closes 5 s later while a server hangs",
    ),
    ANNOUNCER(
        "unreachable_server_is_logged_each_time",
        "        if not self._failing and not self._closed:\n",
        "        if not self._closed:\n",
        "test_unreachable_server_is_counted_and_logged_once",
        "the log of each agent grows while no service runs",
    ),
    PARENTS(
        "late_hello_names_the_parent_that_was_left",
        "        if envelope.uuid in self._left:\n            return False\n",
        "        self._publisher = envelope.service\n"
        "        if envelope.uuid in self._left:\n            return False\n",
        "test_publisher_is_that_of_the_last_hello_of_the_current_parent",
        "an agent is shown below the relay that it has left",
    ),
    TREE(
        "agents_below_themselves_are_hidden",
        "            yield from self._under((agent,), 0)\n",
        "            yield from ()\n",
        "test_agents_below_themselves_are_last",
        "agents with wrong parents are not in the tree",
    ),
    TREE(
        "agents_of_unknown_parents_are_hidden",
        "            yield from self._under(self._below[role, name], 1)\n",
        "            yield from ()\n",
        "test_parent_that_did_not_announce_itself_is_unknown",
        "the agents of a relay that does not announce itself are shown without it",
    ),
    ASKED(
        "agents_of_the_last_service_win",
        "each.age < found[each.uuid].age",
        "each.age > found[each.uuid].age",
        "test_answers_are_merged_by_the_last_announcement",
        "an agent is shown as it was before it moved",
    ),
    CLIENT(
        "relays_in_the_directory_are_asked",
        " and each.role == ORIGIN]",
        "]",
        "test_services_in_the_directory_are_asked",
        "pubsub-db waits for each relay, whose agents the service has anyway",
    ),
)
