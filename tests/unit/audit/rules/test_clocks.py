"""The clocks of hosts, from stretches and samples: known answers. Journals are compared in ``test_corrections.py``."""

from pubsub_lib.audit.rules.clocks import STEP, Clock, Clocks, Comparison, Sample, Stretch, clocks_of, first_monos


def stretch(host: str, offset: int, run: str = "", number: int = 1, begin: int = 0, side: str = "replica") -> Stretch:
    return Stretch(run or host, side, host, host, number, offset, begin + offset, begin + offset + 100, begin)


def sample(one: Clock, two: Clock, ahead: int, age: int = 0) -> Sample:
    return Sample(age, one.host, 1, two.host, 1, 1, one, two, ahead)


def test_offsets_of_a_host_that_are_near_each_other_are_one_clock() -> None:
    near = [stretch("h", 5), stretch("h", 5 + STEP, run="b"), stretch("h", 5 + 2 * STEP, run="c")]
    apart = [stretch("h", 6 + 3 * STEP, run="d"), stretch("g", 5)]
    found = clocks_of([*near, *apart])
    assert [found[each] for each in near] == [Clock("h", 5)] * 3
    assert [found[each] for each in apart] == [Clock("h", 6 + 3 * STEP), Clock("g", 5)]


def test_clock_begins_with_the_first_participant_and_not_with_the_store() -> None:
    found = clocks_of([stretch("h", 5, begin=70), stretch("h", 5, "b", begin=50), stretch("h", 5, "c", 1, 3, "store")])
    assert first_monos(found) == {Clock("h", 5): 50}


def test_group_has_the_time_of_the_publisher_that_began_first() -> None:
    """The replica began before both, by a clock that is an hour ahead."""
    stretches = [
        stretch("r", 3600, begin=-10), stretch("s", 7, begin=20, side="service"), stretch("w", 0, side="writer")
    ]  # fmt: skip
    clocks = clocks_of(stretches)
    one, two, three = (clocks[each] for each in stretches)
    found = Clocks(clocks, [sample(one, two, 3593), sample(one, three, 3600)])
    assert found.ahead == {one: 3600, two: 7, three: 0}
    assert len(set(found.group.values())) == 1
    assert found.shifts() == {"r": [(1, None, 3600)], "s": [(1, None, 7)], "w": [(1, None, 0)]}


def test_first_sample_decides_and_clocks_without_a_sample_stay_apart() -> None:
    stretches = [stretch("r", 0), stretch("s", 0, side="service"), stretch("x", 90)]
    clocks = clocks_of(stretches)
    one, two, three = (clocks[each] for each in stretches)
    found = Clocks(clocks, [sample(one, two, 30, age=9), sample(one, two, 20, age=8)])
    assert (found.ahead[one], found.ahead[two], found.ahead[three]) == (20, 0, 0)
    assert found.group[one] == found.group[two] != found.group[three]


def test_step_of_a_run_compares_two_clocks_and_a_sample_takes_precedence() -> None:
    service = stretch("s", 0, side="service")
    before, after = stretch("r", 0, number=1), stretch("r", -5 * STEP, number=9, begin=50)
    clocks = clocks_of([service, before, after])
    known = sample(clocks[before], clocks[service], 11)
    assert Clocks(clocks, [known]).ahead[clocks[after]] == 11 - 5 * STEP
    suspended = sample(clocks[after], clocks[service], 12)
    assert Clocks(clocks, [known, suspended]).ahead[clocks[after]] == 12
    assert Clocks(clocks, [known]).last_of_hosts()["r"] == clocks[after]


def test_clocks_of_one_host_are_equal_when_nothing_compares_them() -> None:
    """It started again: its monotonic clock began at 0 again."""
    service, before, after = stretch("s", 0, side="service"), stretch("r", 0, "a"), stretch("r", 9 * STEP, "b")
    clocks = clocks_of([service, before, after])
    found = Clocks(clocks, [sample(clocks[before], clocks[service], 40)])
    assert found.ahead[clocks[before]] == found.ahead[clocks[after]] == 40


def test_times_of_commits_are_by_the_clocks_of_the_service_with_the_name() -> None:
    before = Stretch("run", "service", "s", "h", 1, 0, 1000, 2000, 1000)
    after = Stretch("run", "service", "s", "h", 9, 8 * STEP, 2000 + 8 * STEP, 3000 + 8 * STEP, 2000)
    clocks = clocks_of([before, after, stretch("r", 0)])
    assert Clocks(clocks, []).of_names() == {"s": [(2000, 0), (3000 + 8 * STEP, 8 * STEP)]}


def test_clock_is_compared_again_after_each_length() -> None:
    """A difference that is not greater than the least one does not count, and neither does a missing comparison."""
    service = Stretch("s", "service", "s", "s", 1, 0, 0, 1000, 0, 1000)
    replica = Stretch("r", "replica", "r", "r", 1, 70, 80, 1080, 10, 1010)
    clocks = clocks_of([service, replica])
    one, two = clocks[replica], clocks[service]
    found = Clocks(clocks, [sample(one, two, 50)])
    begins = found.begins(300)
    assert begins == [(one, 310), (one, 610), (one, 910)], "the service's clock gives the time"

    def again(begin: int, ahead: int) -> Comparison:
        return Comparison(False, 2, ("r", 1, "s", 1, 1), one, begin, two, begin - 5, ahead)

    found.compare_again(begins, [again(310, 55), again(910, 65)], 5)
    assert [found.at(one, mono) for mono in (0, 310, 909, 910, 2000)] == [50, 50, 50, 65, 65]
    assert found.pieces(two) == [(None, 0)]
    assert found.shifts()["r"] == [(1, None, 50), (1, 910, 65)]


def test_times_of_commits_are_by_the_pieces_of_clocks() -> None:
    service = Stretch("s", "service", "s", "s", 1, 0, 0, 1000, 0, 1000)
    other = Stretch("x", "service", "x", "x", 1, 7, 17, 1017, 10, 1010)
    clocks = clocks_of([service, other])
    found = Clocks(clocks, [sample(clocks[other], clocks[service], 0)])
    again = Comparison(False, 2, ("r", 1, "s", 1, 1), clocks[other], 510, clocks[service], 505, 9)
    found.compare_again(found.begins(500), [again], 5)
    assert found.of_names() == {"s": [(1000, 0)], "x": [(516, 0), (1017, 9)]}
