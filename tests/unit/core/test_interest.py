"""Interest counts the users of topics."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.interest import Interest

TOPICS = st.sampled_from("abc")


def test_topic_named_twice_in_one_call_gets_one_user() -> None:
    interest = Interest()
    interest.add(["a", "b", "a"])
    assert interest.without_users(["c", "a", "c", "d"]) == ("c", "d")
    interest.add(["a"])
    assert interest.leave("a") == 1
    assert interest.leave("a") == 0
    assert interest.without_users(["a"]) == ("a",)


@given(st.lists(st.one_of(st.lists(TOPICS, min_size=1), TOPICS)))
def test_interest_counts_like_a_counter(steps: list[list[str] | str]) -> None:
    interest, model = Interest(), Counter[str]()
    for step in steps:
        if isinstance(step, list):
            assert interest.without_users(step) == tuple(dict.fromkeys(each for each in step if not model[each]))
            interest.add(step)
            model.update(set(step))
        else:
            model[step] = max(model[step] - 1, 0)
            assert interest.leave(step) == model[step]
