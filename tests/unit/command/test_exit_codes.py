"""Exit codes do not change from release to release."""

import pytest

from pubsub_lib import errors
from pubsub_lib.command import exit_codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound("x"), 1),
        (errors.AlreadyExists("x"), 1),
        (errors.VersionMismatch("x"), 1),
        (errors.NotSubscribedError("x"), 1),
        (exit_codes.Declined("x"), 1),
        (errors.ConfigError("x"), 2),
        (errors.DriverError("x"), 2),
        (errors.InvalidValueError("x"), 2),
        (errors.TransportError("x"), 3),
        (errors.WaitTimeout("x"), 3),
        (errors.StoreUnavailable("x"), 4),
        (errors.StoreFull("x"), 4),
        (errors.SchemaError("x"), 4),
        (errors.OutcomeUnknown("x", 1), 4),
        (exit_codes.FileError("x"), 5),
    ],
)
def test_code_of_an_error(error: errors.PubSubError, code: int) -> None:
    assert exit_codes.code_of(error) == code
