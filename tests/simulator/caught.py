"""Where ``hunt.py`` saw each mutant first, and by which invariant. Written by it."""

from typing import NamedTuple


class Caught(NamedTuple):
    """A seed and the invariant that it broke."""

    seed: int
    invariant: str


CAUGHT: dict[str, Caught] = {
    "ahead_of_hole": Caught(1, "digest"),
    "applied_during_full": Caught(78, "clock"),
    "half_a_run": Caught(2, "digest"),
    "half_a_transaction": Caught(3, "whole"),
    "half_a_step": Caught(3, "whole"),
    "tracker_by_position": Caught(23, "digest"),
    "store_by_position": Caught(55, "bound"),
    "delta_from_known_itself": Caught(0, "incomplete"),
    "known_taken_for_new": Caught(1, "guard"),
    "restore_behind": Caught(69, "fresh"),
    "restore_overtaken": Caught(1, "bound"),
    "behind_is_late": Caught(77, "equal"),
    "same_position_is_known": Caught(7, "staleness"),
    "waits_by_position": Caught(1, "read back"),
    "held_is_applied": Caught(1, "read back"),
    "behind_is_used": Caught(5, "forward"),
    "delta_from_hello": Caught(3, "delta without cause"),
    "head_instead_of_link": Caught(0, "digest"),
    "known_from_snapshot": Caught(1, "committed"),
    "moved_left_behind": Caught(0, "digest"),
    "deletes_missed": Caught(1, "digest"),
    "torn_snapshot": Caught(5, "whole"),
    "dropped_stays": Caught(1, "view"),
    "commit_retried": Caught(1, "twice"),
    "waiting_kept": Caught(23, "delta without cause"),
    "clock_restarted": Caught(9, "clock"),
    "clock_cleared": Caught(3, "clock"),
    "clock_forgotten": Caught(3, "clock"),
    "waiting_unbounded": Caught(3, "buffers"),
    "overflow_restarts": Caught(9, "one sync"),
    "need_forgotten": Caught(47, "need"),
    "late_answer_used": Caught(150, "late answer"),
    "failed_forever": Caught(1, "bound"),
    "no_sync_timeout": Caught(69, "sync without end"),
    "sync_proves_its_end": Caught(1, "staleness"),
    "full_for_delta": Caught(0, "full without cause"),
    "proof_too_early": Caught(1, "staleness"),
    "staleness_from_arrival": Caught(7, "delta without cause"),
    "nonce_reused": Caught(41, "staleness"),
    "age_forgotten": Caught(7, "hello"),
    "age_from_answer": Caught(7, "hello"),
    "asked_when_idle": Caught(10, "delta without cause"),
    "polled_when_silent": Caught(21, "fresh"),
    "never_polled": Caught(0, "bound"),
    "reconnection_unasked": Caught(20, "reconnected"),
    "asked_before_subscribed": Caught(4, "delta without cause"),
    "only_first_connection_asked": Caught(20, "reconnected"),
    "new_topic_missed": Caught(3, "clock"),
    "lease_too_long": Caught(26, "lease"),
    "history_is_not_told": Caught(1, "handler back"),
    "history_ahead_is_ours": Caught(54, "handler back"),
    "handlers_twice": Caught(1, "handler twice"),
    "conflated_to_first": Caught(1, "handler last"),
    "not_retried": Caught(6, "handler last"),
}
