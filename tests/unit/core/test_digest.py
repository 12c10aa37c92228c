"""The digest: order does not matter, identity and version do, halves add up."""

from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.digest import BUCKETS, MASK, add, bucket_of, fingerprint, subtract
from pubsub_lib.store.rows import join, split

prints = st.integers(0, MASK)


@given(st.lists(prints, max_size=20))
def test_sum_is_independent_of_order_and_equals_the_sum_of_halves(some: list[int]) -> None:
    forward = backward = 0
    for fp in some:
        forward = add(forward, fp)
    for fp in reversed(some):
        backward = add(backward, fp)
    assert forward == backward <= MASK
    low, high = (sum(half) for half in zip(*map(split, some), strict=True)) if some else (0, 0)
    assert join(low, high) == forward
    for fp in some:
        forward = subtract(forward, fp)
    assert forward == 0


@given(prints)
def test_split_and_join_are_inverse_and_fit_into_32_bits(digest: int) -> None:
    low, high = split(digest)
    assert 0 <= low < 2**32
    assert 0 <= high < 2**32
    assert join(low, high) == digest


def test_fingerprint_depends_on_each_part_of_an_object() -> None:
    base = fingerprint("port", "k", 1, b"1")
    others = [("port", "k", 2, b"1"), ("port", "k", 1, b"2"), ("port", "l", 1, b"1"), ("pork", "k", 1, b"1"),
              ("por", "tk", 1, b"1"), ("port", "k", 11, b"")]  # fmt: skip
    assert base not in [fingerprint(*other) for other in others]


def test_fingerprints_and_buckets_equal_recorded_values() -> None:
    """Known answers: another value here would make every stored digest wrong."""
    assert fingerprint("lport", "p\u00fc1", 7, b'{"switch":"s1"}') == KNOWN_FINGERPRINT
    assert bucket_of("lport", "p\u00fc1") == KNOWN_BUCKET


def test_bucket_depends_on_identity_only_and_all_are_used() -> None:
    buckets = {bucket_of("t", f"k{n}") for n in range(10_000)}
    assert buckets == set(range(BUCKETS))


KNOWN_FINGERPRINT = 15565698029753987406
KNOWN_BUCKET = 155
