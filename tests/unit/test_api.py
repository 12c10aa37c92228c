"""The one thing of the contract that is no declaration: what a driver is given is shown without its secrets."""

import io

import rich.console

from pubsub_lib.api import DriverSettings


def test_what_a_driver_is_given_is_shown_without_passwords() -> None:
    url = "redis://:tOpSeCrEt@broker/1"
    given = DriverSettings(store_url=url, addresses=(url,), bind_address=url, options={"password": "tOpSeCrEt", "n": 3})
    out = io.StringIO()
    rich.console.Console(file=out, width=4000).print(given)
    for text in (repr(given), str(given), out.getvalue()):
        assert "tOpSeCrEt" not in text
        assert "redis://:***@broker/1" in text
    assert "options={'password': 'hidden', 'n': 3}" in repr(given)
    assert given.options["password"] == "tOpSeCrEt"
