"""A hello request that cannot be sent is logged, and stops nothing."""

from typing import Any

import pytest

from pubsub_lib.core.effects import RequestHello
from pubsub_lib.errors import TransportError
from pubsub_lib.replica.hello_requests import send_hello_request

REQUEST = RequestHello("nonce", ("t",))


class Failing:
    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.sent: list[tuple[str, tuple[str, ...]]] = []

    def request_hello(self, nonce: str, topics: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((nonce, topics))


def log_of(error: Exception | None, caplog: pytest.LogCaptureFixture, *, closing: bool = False) -> str:
    subscriber: Any = Failing(error)
    send_hello_request(subscriber, REQUEST, lambda: closing)
    assert subscriber.sent == ([] if error else [("nonce", ("t",))])
    return caplog.text


def test_request_is_sent_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    assert log_of(None, caplog) == ""


def test_request_that_the_transport_refuses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert "cannot send hello requests to the publishers: full" in log_of(TransportError("full"), caplog)


def test_refusal_while_the_replica_closes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert log_of(TransportError("closed"), caplog, closing=True) == ""


def test_error_of_the_driver_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    text = log_of(ZeroDivisionError("a bug"), caplog)
    assert "internal error of the driver while sending hello requests" in text
    assert "ZeroDivisionError: a bug" in text
