"""Every topic is named once in each round of requests, and a request holds a bounded number."""

from pubsub_lib.core.compared_topics import MAX_COMPARED, ComparedTopics


def test_rounds_name_every_topic_once() -> None:
    topics = [f"t{number}" for number in range(2 * MAX_COMPARED + 50)]
    compared = ComparedTopics()
    for _ in range(3):
        requests = [compared.next(lambda: list(topics)) for _ in range(3)]
        assert [len(each) for each in requests] == [MAX_COMPARED, MAX_COMPARED, 50]
        assert sorted(name for each in requests for name in each) == sorted(topics)


def test_topics_that_fit_in_no_request_together_are_named_one_after_the_other() -> None:
    topics = ["x" * 200 + str(number) for number in range(MAX_COMPARED)]
    compared = ComparedTopics()
    named: list[str] = []
    while len(named) < len(topics):
        request = compared.next(lambda: list(topics))
        assert request
        named += request
    assert sorted(named) == sorted(topics)


def test_new_topics_are_named_in_the_next_round() -> None:
    topics = ["a"]
    compared = ComparedTopics()
    assert compared.next(lambda: list(topics)) == ("a",)
    topics.append("b")
    assert sorted(compared.next(lambda: list(topics))) == ["a", "b"]


def test_replica_without_topics_names_none() -> None:
    assert ComparedTopics().next(list) == ()
