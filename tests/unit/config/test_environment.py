"""Misspelt environment variables are found, and those of other programs are not."""

import pytest

from pubsub_lib.config.environment import has_options, misspelt

GROUPS = {
    "pubsub": ("store_url", "service_name", "max_idle_time"),
    "publisher_service": ("metrics_port",),
    "pubsub_zmq": ("send_hwm",),
    "pubsub_broken": (),
}


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("OS_PUBSUB__STORE_ULR", "OS_PUBSUB__STORE_URL"),
        ("OS_PUBSUB__SEND_HWM", "OS_PUBSUB_ZMQ__SEND_HWM"),
        ("OS_PUBSUB_STORE_URL", "OS_PUBSUB__STORE_URL"),
        ("OS_PUBSUB___STORE_URL", "OS_PUBSUB__STORE_URL"),
        ("OS_pubsub__store_url", "OS_PUBSUB__STORE_URL"),
        ("OS_PUBSBU__STORE_URL", "OS_PUBSUB__STORE_URL"),
        ("OS_PUBLISHER_SERVCE__METRICS_PORT", "OS_PUBLISHER_SERVICE__METRICS_PORT"),
        ("OS_PUBLISHER_SERVICE__METRIC_PORT", "OS_PUBLISHER_SERVICE__METRICS_PORT"),
        ("OS_PUBSUB__XQ", ""),
    ],
)
def test_misspelt_variable_is_named_with_the_one_that_is_meant(variable: str, meant: str) -> None:
    assert list(misspelt(["PATH", variable, "OS_PUBSUB__STORE_URL"], GROUPS)) == [(variable, meant)]


@pytest.mark.parametrize(
    "variable",
    [
        "OS_PUBSUB__STORE_URL",
        "OS_DATABASE__CONNECTION",
        "OS_DEFAULT__DEBUG",
        "OS_AUTH_URL",
        "OS_USERNAME",
        "PUBSUB__STORE_URL",
        "OS_PUBSUB_BROKEN__ANYTHING",  # a driver whose options cannot be imported
        "OS_PUBSUB",
        "OS_",
    ],
)
def test_other_variable_is_not_named(variable: str) -> None:
    assert list(misspelt([variable], GROUPS)) == []


@pytest.mark.parametrize(
    ("variables", "found"), [(["PATH"], False), ([], False), (["PATH", "OS_PUBSB__X"], True), (["os_pubsub__x"], True)]
)
def test_variables_that_may_be_meant_for_options(variables: list[str], found: bool) -> None:
    assert has_options(variables) is found
