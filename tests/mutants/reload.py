"""Mistakes in the reload of the service's configuration (SIGHUP), and in signals that stop a program."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"pubsub_lib/{path}.py", before, after, (f"tests/unit/{tests}.py::{test}",), wrong=wrong)


RELOAD = partial(_mutant, "service/reload", "service/test_reload")
SIGNALS = partial(_mutant, "command/stop_signal", "service/test_shutdown")
STOP = partial(_mutant, "command/stop_signal", "command/test_stop_signal")

MUTANTS = (
    RELOAD(
        "needed_restart_is_named_once",
        "values[each] if each in taken else used",
        "values[each]",
        "test_each_other_option_is_named_at_every_reload_until_the_restart",
        "an operator who reloads twice believes that every option is in use",
    ),
    RELOAD(
        "options_that_the_role_does_not_use_are_in_use",
        "_named((changed & taken) - unused)",
        "_named(changed & taken)",
        "test_options_that_the_role_does_not_use_are_not_called_in_use",
        "an operator believes that a relay trims the changelog",
    ),
    SIGNALS(
        "shutdown_is_lost_behind_reloads",
        "            self._asked = True\n            if self._end_at_second:\n",
        "            if self._end_at_second:\n",
        "test_shutdown_is_not_lost_behind_requests_to_reload",
        "a service that is reloaded very often cannot be stopped",
    ),
    SIGNALS(
        "reload_ends_the_service",
        "any(each in (_ASKED, *SIGNALS) for each in received)",
        "bool(received)",
        "test_reload_ends_the_wait_without_a_shutdown",
        "systemctl reload stops the service",
    ),
    STOP(
        "second_signal_of_a_command_is_ignored",
        "signal.signal(number, signal.SIG_DFL)",
        "pass",
        "test_second_signal_of_a_kind_ends_the_process_where_that_is_wanted",
        "a follower whose round takes minutes can only be ended by SIGKILL",
    ),
)
