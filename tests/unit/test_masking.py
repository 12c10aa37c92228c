"""Texts for people contain no passwords."""

import io
import logging

import pytest
import rich.console
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib import Settings
from pubsub_lib.api import DriverSettings
from pubsub_lib.errors import ConfigError
from pubsub_lib.masking import has_password, masked, masked_url, masked_value
from pubsub_lib.store import Store, StoreSettings, url
from pubsub_memory import MemoryDriver

SECRET = "tOpSeCrEt"
URLS = [
    f"postgresql://me:{SECRET}@db/net",
    f"mysql://me:{SECRET}@db:3306/net",
    f"postgresql://me:x@{SECRET}@db/net",
    f"postgresql://me:to'{SECRET}@db/net",
    f'postgresql://me:to"{SECRET}"@db/net',
    f"postgresql://me:to {SECRET} 1@db/net",
    f"postgresql://me:1 {SECRET}@db/net",
    f"postgresql://me@db/net?password={SECRET}&application_name=x",
    f"postgresql://me@db/net?password=to'{SECRET}&application_name=x",
    f"postgresql://me@db/net?sslpassword={SECRET}",
    f"redis://:{SECRET}@broker/1",
]


@pytest.mark.parametrize("text", URLS)
def test_a_url_is_shown_without_its_password(text: str) -> None:
    assert has_password(text)
    if ":1 " not in text:  # in a sentence it is a port and a word
        assert SECRET not in masked(f"cannot reach {text!r}, nor {text}; look at it")
    assert SECRET not in repr(Settings(store_url=text))
    assert SECRET not in f"{DriverSettings(store_url=text)} {DriverSettings(addresses=(text,), bind_address=text)!r}"
    if not text.startswith("redis"):
        assert SECRET not in url.shown(text)


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////a:b@c/net.db", "postgresql://me@db/net", "tcp://10.0.0.1:8866", "tcp://[::1]:8866", "", "a@b",
        "no answer from tcp://10.0.0.1:8866 and tcp://10.0.0.2:8866, ask net@example.org",
    ],
)  # fmt: skip
def test_text_without_a_password_is_unchanged(text: str) -> None:
    assert masked(text) == masked_value("x", text) == text
    assert not has_password(text)


@given(password=st.text(min_size=8))
def test_any_password_of_a_url_is_hidden(password: str) -> None:
    url = f"postgresql://me:{password}@db.example/net"
    assert masked_url(url) == "postgresql://me:***@db.example/net"
    assert has_password(url)
    shown = repr(Settings(store_url=url))
    assert "'postgresql://me:***@db.example/net'" in shown


@given(password=st.text(st.characters(exclude_categories=("Z", "C")), min_size=8))
def test_any_password_without_spaces_is_hidden_in_a_sentence(password: str) -> None:
    assert password not in masked(f"cannot reach 'postgresql://me:{password}@db.example/net', see x@y")


def test_settings_and_stores_are_shown_without_passwords(sqlite_url: str) -> None:
    settings = Settings(
        store_url=URLS[0],
        driver_options={"password": SECRET, "broker": URLS[-1], "auth_token": SECRET, "brokers": [URLS[-1]]},
        multiproc_options={"secret": SECRET},
        addresses=(URLS[-1],),
    )
    out = io.StringIO()
    rich.console.Console(file=out, width=4000).print(settings, settings.for_driver(), settings.store)
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s %r", (settings, settings.for_driver()), None)
    store = Store(URLS[0], create=False)
    shown = [repr(settings), str(settings), out.getvalue(), record.getMessage(), repr(settings.for_multiproc())]
    assert not [text for text in [*shown, repr(store), repr(StoreSettings())] if SECRET in text]
    assert "'postgresql://me:***@db/net'" in repr(settings)
    assert settings.store_url == URLS[0]  # the value itself is unchanged
    assert settings.for_driver().options["password"] == SECRET


def test_an_unescaped_at_sign_in_a_password_is_refused() -> None:
    with pytest.raises(ConfigError, match="write %40") as caught:
        url.parse(URLS[2])
    assert SECRET not in str(caught.value)


def test_masked_value_accepts_every_type() -> None:
    assert masked_value("password", "") == ""
    assert masked_value("token", 5) == "hidden"
    assert masked_value("x", (1, URLS[0], None)) == (1, "postgresql://me:***@db/net", None)
    assert MemoryDriver.publisher(DriverSettings()) is not None  # the own repr does not affect their use
