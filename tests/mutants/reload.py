"""Mistakes in the reload of the service's configuration (SIGHUP)."""

from functools import partial

from _mutants.table import Mutant


def _mutant(module: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    tests = (f"tests/unit/service/test_{module}.py::{test}",)
    return Mutant(name, f"pubsub_lib/service/{module}.py", before, after, tests, wrong=wrong)


RELOAD = partial(_mutant, "reload")
SIGNALS = partial(_mutant, "shutdown")

MUTANTS = (
    RELOAD(
        "needed_restart_is_named_once",
        "values[each] if each in taken else used",
        "values[each]",
        "test_each_other_option_is_named_at_every_reload_until_the_restart",
        "an operator who reloads twice believes that every option is in use",
    ),
    SIGNALS(
        "shutdown_is_lost_behind_reloads",
        "        if number in SIGNALS:\n            self._asked = True\n",
        "        pass\n",
        "test_shutdown_is_not_lost_behind_requests_to_reload",
        "a service that is reloaded very often cannot be stopped",
    ),
    SIGNALS(
        "reload_ends_the_service",
        "if any(each != RELOAD for each in received):",
        "if received:",
        "test_reload_ends_the_wait_without_a_shutdown",
        "systemctl reload stops the service",
    ),
)
