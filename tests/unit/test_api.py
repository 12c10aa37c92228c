"""The contract's only code: the settings of a driver are shown without passwords."""

import io

import rich.console

from pubsub_lib.api import DriverSettings


def test_driver_settings_are_shown_without_passwords() -> None:
    url = "redis://:tOpSeCrEt@broker/1"
    given = DriverSettings(store_url=url, addresses=(url,), bind_address=url, options={"password": "tOpSeCrEt", "n": 3})
    out = io.StringIO()
    rich.console.Console(file=out, width=4000).print(given)
    for text in (repr(given), str(given), out.getvalue()):
        assert "tOpSeCrEt" not in text
        assert "redis://:***@broker/1" in text
    assert "options={'password': 'hidden', 'n': 3}" in repr(given)
    assert given.options["password"] == "tOpSeCrEt"
