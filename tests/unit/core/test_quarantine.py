"""The quarantine of publishers that the store contradicts (rule 14)."""

from pubsub_lib.core.quarantine import (
    CONTRADICTIONS,
    FIRST_SECONDS,
    MAX_KEPT,
    SECONDS,
    SPACING,
    Quarantine,
    QuarantinedPublisher,
    QuarantineTimes,
)

UUID = "00112233445566778899aabbccddeeff"
LIAR = ("api-1", UUID)
APART = SPACING + 1.0


def test_publisher_is_excluded_after_repeated_contradictions_only() -> None:
    quarantine = Quarantine()
    for number in range(CONTRADICTIONS - 1):
        assert not quarantine.contradicted(LIAR, number * APART, number * APART)
    assert not quarantine.until
    assert not quarantine.excludes(UUID, 2 * APART)
    assert quarantine.contradicted(LIAR, 3 * APART, 3 * APART)
    assert quarantine.excludes(UUID, 3 * APART)
    assert quarantine.excluded(3 * APART + 1.0) == [QuarantinedPublisher(*LIAR, SECONDS - 1.0)]
    assert not quarantine.excludes("another", 3 * APART)
    assert not quarantine.contradicted(LIAR, 2 * APART, 3 * APART + 1.0), "reached before the last that counted"


def test_contradictions_of_one_restore_count_once() -> None:
    """The topics show it one after the other, and messages of the undone history arrive late."""
    quarantine = Quarantine()
    for number in range(100):
        at = number * SPACING / 100
        assert not quarantine.contradicted(LIAR, at, at)
    assert not quarantine.contradicted(LIAR, SPACING, 3 * SPACING), "detected late"
    assert not quarantine.until


def test_times_of_a_quarantine_can_be_given() -> None:
    quarantine = Quarantine(QuarantineTimes(8.0, 1.0, 8.0))
    for at in (0.0, 0.9, 1.5, 1.6, 3.0):
        assert quarantine.contradicted(LIAR, at, at) == (at == 3.0)
    assert quarantine.excludes(UUID, 10.9)
    assert not quarantine.excludes(UUID, 11.0)


def test_quarantine_ends_and_can_begin_again() -> None:
    quarantine = Quarantine()
    for number in range(CONTRADICTIONS):
        quarantine.contradicted(LIAR, number * APART, number * APART)
    begun = (CONTRADICTIONS - 1) * APART
    assert quarantine.excludes(UUID, begun + SECONDS - 0.1)
    assert quarantine.excluded(begun + SECONDS) == []
    assert not quarantine.excludes(UUID, begun + SECONDS)
    assert not quarantine.until
    later = begun + SECONDS + 1.0
    assert not quarantine.contradicted(LIAR, later, later), "earlier contradictions do not count again"


def test_rare_contradictions_do_not_add_up() -> None:
    quarantine = Quarantine()
    for number in range(10):
        assert not quarantine.contradicted(LIAR, number * SECONDS, number * SECONDS)


def test_number_of_remembered_publishers_is_bounded() -> None:
    quarantine = Quarantine()
    for number in range(10 * MAX_KEPT):
        quarantine.contradicted(("api-1", f"{number:032x}"), 0.0, 0.0)
    assert len(quarantine._times) == MAX_KEPT


def test_number_of_excluded_publishers_is_bounded_and_ended_quarantines_are_removed() -> None:
    quarantine = Quarantine(QuarantineTimes(spacing=0.0))

    def exclude(number: int, now: float) -> None:
        for _ in range(CONTRADICTIONS):
            quarantine.contradicted((f"api-{number}", f"{number:032x}"), now := now + 1.0, now)

    for number in range(MAX_KEPT + 1):
        exclude(number, 0.0)
    assert len(quarantine.until) == MAX_KEPT
    assert not quarantine.excludes(f"{0:032x}", 10.0), "the oldest is used again"
    assert quarantine.excluded(10.0)[0].service == "api-1"
    exclude(0, 2 * SECONDS)
    assert [*quarantine.until] == [f"{0:032x}"]


def at_once() -> Quarantine:
    quarantine = Quarantine()
    quarantine.at_once = True
    return quarantine


def test_with_known_leases_the_first_contradiction_excludes_for_a_short_time() -> None:
    quarantine = at_once()
    assert quarantine.contradicted(LIAR, 4.0, 5.0)
    assert quarantine.excluded(5.0) == [QuarantinedPublisher(*LIAR, FIRST_SECONDS)]
    assert not quarantine.excludes(UUID, 5.0 + FIRST_SECONDS)


def test_further_contradictions_exclude_for_longer() -> None:
    quarantine = at_once()
    assert quarantine.contradicted(LIAR, 0.0, 0.0)
    assert not quarantine.contradicted(LIAR, SPACING, SPACING), "it is excluded already, and this counts once"
    assert quarantine.excluded(0.0)[0].seconds_left == FIRST_SECONDS
    assert not quarantine.contradicted(LIAR, APART, APART), "it is excluded already"
    assert quarantine.excluded(APART)[0].seconds_left == SECONDS
    end = APART + SECONDS
    assert not quarantine.excludes(UUID, end)
    assert quarantine.contradicted(LIAR, end + SECONDS / 2, end + SECONDS / 2), "soon after a quarantine"
    assert quarantine.excluded(end + SECONDS / 2)[0].seconds_left == SECONDS


def test_contradiction_before_the_leases_are_known_does_not_excuse_the_next_one() -> None:
    quarantine = Quarantine()
    assert not quarantine.contradicted(LIAR, 0.0, 0.0)
    quarantine.at_once = True
    assert quarantine.contradicted(LIAR, 1.0, 1.0)
    assert quarantine.excluded(1.0)[0].seconds_left == FIRST_SECONDS


def test_later_contradiction_does_not_shorten_a_quarantine() -> None:
    quarantine = at_once()
    quarantine.contradicted(LIAR, 0.0, 0.0)
    quarantine.contradicted(LIAR, APART, APART)
    quarantine.times = QuarantineTimes(seconds=1.0, spacing=0.0)
    quarantine.contradicted(LIAR, APART + 1.0, APART + 1.0)
    assert quarantine.excluded(APART + 1.0)[0].seconds_left == SECONDS - 1.0


def test_store_that_went_back_accuses_no_publisher() -> None:
    """Nor do messages of the undone history that arrive soon after."""
    quarantine = at_once()
    quarantine.went_back(100.0)
    assert not quarantine.contradicted(LIAR, 90.0, 101.0)
    assert not quarantine.contradicted(LIAR, 100.0 + SPACING, 200.0)
    assert quarantine.excuses(100.0 + SPACING)
    assert quarantine.contradicted(LIAR, 100.0 + APART, 200.0)


def test_without_a_time_no_publisher_is_excluded() -> None:
    quarantine = Quarantine(QuarantineTimes(seconds=0.0))
    quarantine.at_once = True
    assert not quarantine.contradicted(LIAR, 0.0, 0.0)
    assert not quarantine.until


def test_number_of_remembered_contradictions_is_bounded() -> None:
    quarantine = Quarantine(QuarantineTimes(spacing=0.0))
    for number in range(1, 50):
        quarantine.contradicted(LIAR, float(number), float(number))
    assert len(quarantine._times[UUID]) == CONTRADICTIONS
