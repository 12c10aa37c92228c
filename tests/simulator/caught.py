"""Where ``hunt.py`` saw each mutant first, and by which invariant. Written by it."""

from typing import NamedTuple


class Caught(NamedTuple):
    """A seed and the invariant that it broke."""

    seed: int
    invariant: str


CAUGHT: dict[str, Caught] = {
    "ahead_of_hole": Caught(1, "digest"),
    "applied_during_full": Caught(51, "forward"),
    "half_a_run": Caught(2, "digest"),
    "half_a_transaction": Caught(3, "whole"),
    "half_a_step": Caught(3, "whole"),
    "tracker_by_position": Caught(1, "digest"),
    "store_by_position": Caught(45, "bound"),
    "delta_from_known_itself": Caught(0, "incomplete"),
    "known_taken_for_new": Caught(2, "guard"),
    "restore_behind": Caught(45, "bound"),
    "restore_overtaken": Caught(1, "bound"),
    "behind_is_late": Caught(189, "equal"),
    "same_position_is_known": Caught(45, "staleness"),
    "waits_by_position": Caught(1, "staleness"),
    "held_is_applied": Caught(77, "read back"),
    "behind_is_used": Caught(5, "forward"),
    "delta_from_hello": Caught(2, "delta without cause"),
    "head_instead_of_link": Caught(0, "digest"),
    "known_from_snapshot": Caught(1, "committed"),
    "moved_left_behind": Caught(0, "digest"),
    "deletes_missed": Caught(1, "digest"),
    "torn_snapshot": Caught(1, "whole"),
    "dropped_stays": Caught(4, "view"),
    "commit_retried": Caught(1, "twice"),
    "waiting_kept": Caught(39, "delta without cause"),
    "clock_restarted": Caught(1, "clock"),
    "clock_cleared": Caught(19, "clock"),
    "clock_forgotten": Caught(2, "clock"),
    "waiting_unbounded": Caught(3, "buffers"),
    "overflow_restarts": Caught(9, "one sync"),
    "need_forgotten": Caught(6, "need"),
    "late_answer_used": Caught(37, "late answer"),
    "failed_forever": Caught(1, "bound"),
    "no_sync_timeout": Caught(7, "sync without end"),
    "sync_proves_its_end": Caught(1, "staleness"),
    "full_for_delta": Caught(0, "full without cause"),
    "proof_too_early": Caught(1, "staleness"),
    "staleness_from_arrival": Caught(9, "staleness"),
    "nonce_reused": Caught(13, "delta without cause"),
    "age_forgotten": Caught(2, "hello"),
    "age_from_answer": Caught(20, "hello"),
    "asked_when_idle": Caught(10, "asked"),
    "polled_when_silent": Caught(21, "fresh"),
    "never_polled": Caught(0, "bound"),
    "reconnection_unasked": Caught(20, "reconnected"),
    "asked_before_subscribed": Caught(4, "delta without cause"),
    "only_first_connection_asked": Caught(20, "reconnected"),
    "store_point_ignored": Caught(10, "asked"),
    "connection_not_greeted": Caught(2, "greeted"),
    "hello_per_topic": Caught(1, "broadcasts"),
    "hello_of_all_topics": Caught(1, "own topics"),
    "hello_inside_lock": Caught(3, "prompt"),
    "refusal_ignored": Caught(3, "refusal"),
    "new_topic_missed": Caught(3, "staleness"),
    "lease_too_long": Caught(26, "lease"),
    "history_is_not_told": Caught(1, "handler back"),
    "history_ahead_is_ours": Caught(54, "handler back"),
    "handlers_twice": Caught(1, "handler twice"),
    "conflated_to_first": Caught(1, "handler last"),
    "not_retried": Caught(1, "handler last"),
}
