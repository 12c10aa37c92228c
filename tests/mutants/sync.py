"""Mistakes in a replica's client of the sync channel."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"pubsub_lib/{path}.py", before, after, (f"tests/unit/{tests}.py::{test}",), wrong=wrong)


CLIENT = partial(_mutant, "sync/client", "sync/test_client")

MUTANTS = (
    CLIENT(
        "silent_server_is_asked_first_again",
        "                self._ask_first_last()  # also when",
        "                # also when",
        "test_server_that_hangs_until_the_timeout_is_asked_last_next_time",
        "a hanging server takes the whole time of every sync, and no other one is ever asked",
    ),
    CLIENT(
        "relay_that_did_not_help_is_asked_again",
        "question.refresh or self._asks_again(question.wants)",
        "self._asks_again(question.wants)",
        "test_server_whose_answer_did_not_help_is_asked_last",
        "a relay that is cut off refuses nothing, so the replica never gets a newer answer",
    ),
    CLIENT(
        "relay_without_links_is_asked_again",
        "question.refresh or self._asks_again(question.wants)",
        "question.refresh",
        "test_relay_that_has_nothing_for_what_is_asked_again_is_asked_last",
        "a relay that lags has nothing for an announced change, and the replica asks no other one",
    ),
    CLIENT(
        "busy_server_is_asked_at_once",
        "        self._not_before[url] = self._now() + seconds\n",
        "",
        "test_busy_server_is_not_asked_before_the_time_that_it_named",
        "replicas that were sent away come back at once, together",
    ),
    CLIENT(
        "demanded_pause_is_not_bounded",
        "return min(float(retry_after[:9]), MAX_RETRY_AFTER)",
        "return float(retry_after[:9])",
        "test_retry_after_is_bounded",
        "one wrong header keeps a replica from its syncs for years",
    ),
)
