"""The quarantine of publishers that the store contradicts (rule 14)."""

from pubsub_lib.core.quarantine import CONTRADICTIONS, MAX_KEPT, SECONDS, Quarantine

UUID = "00112233445566778899aabbccddeeff"


def test_publisher_is_excluded_after_repeated_contradictions_only() -> None:
    quarantine = Quarantine()
    for number in range(CONTRADICTIONS - 1):
        assert not quarantine.contradicted(UUID, float(number))
    assert not quarantine.until
    assert not quarantine.excludes(UUID, 5.0)
    assert quarantine.contradicted(UUID, 10.0)
    assert quarantine.excludes(UUID, 10.0)
    assert quarantine.excluded(10.0) == [UUID]
    assert not quarantine.excludes("another", 10.0)


def test_quarantine_ends_and_can_begin_again() -> None:
    quarantine = Quarantine()
    for _ in range(CONTRADICTIONS):
        quarantine.contradicted(UUID, 1.0)
    assert quarantine.excludes(UUID, 0.9 + SECONDS)
    assert quarantine.excluded(1.0 + SECONDS) == []
    assert not quarantine.excludes(UUID, 1.0 + SECONDS)
    assert not quarantine.until
    assert not quarantine.contradicted(UUID, 2.0 + SECONDS), "earlier contradictions do not count again"


def test_rare_contradictions_do_not_add_up() -> None:
    quarantine = Quarantine()
    for number in range(10):
        assert not quarantine.contradicted(UUID, number * SECONDS)


def test_number_of_remembered_publishers_is_bounded() -> None:
    quarantine = Quarantine()
    for number in range(10 * MAX_KEPT):
        quarantine.contradicted(f"{number:032x}", 0.0)
    assert len(quarantine._times) == MAX_KEPT
