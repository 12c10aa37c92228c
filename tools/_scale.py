"""How many generated cases the tests have, for ``tools/test``, ``tools/mutate`` and the tests themselves."""

SCALE_VARIABLE = "PUBSUB_TEST_SCALE"
"""The environment variable by which the number of generated cases is multiplied. A quick run has 1, the default."""
