"""Mistakes in ``pubsub_lib/store``, each caught on the database that it concerns."""

from _mutants.table import Mutant

STORE = "pubsub_lib/store"
TESTS = "tests/unit/store"

MUTANTS = (
    Mutant(
        name="digest_keeps_what_was_replaced",
        path=f"{STORE}/links.py",
        before="digest.subtract(sums.get(before.topic, 0), before.fingerprint)",
        after="sums.get(before.topic, 0)",
        tests=(f"{TESTS}/test_links.py::test_links_lead_from_the_old_heads_to_the_new",),
        wrong="the digest of a topic still counts the value that a change replaced",
    ),
)
