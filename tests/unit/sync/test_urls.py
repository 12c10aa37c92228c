"""The URLs of the option ``sync_url``, and those that are known at a time."""

import logging

import pytest

from pubsub_lib.errors import ConfigError
from pubsub_lib.sync.urls import ChannelUrl, channel_urls, known_urls, warn_of_plain_channels


def test_urls_are_read_in_their_order_with_default_port_and_path() -> None:
    assert channel_urls("http://10.0.0.1:8867, https://relay.example/a/b,,http://[::1]:1/ ") == (
        ChannelUrl(False, "10.0.0.1", 8867, "/sync"),
        ChannelUrl(True, "relay.example", 443, "/a/b"),
        ChannelUrl(False, "::1", 1, "/sync"),
    )
    assert [str(each) for each in channel_urls("http://[::1]:1,https://b")] == [
        "http://[::1]:1/sync",
        "https://b:443/sync",
    ]


def test_urls_of_a_function_are_those_that_it_knows_now() -> None:
    assert known_urls("http://a:1,http://b:2")() == channel_urls("http://a:1,http://b:2")
    found = [channel_urls("http://a:1"), channel_urls("http://b:2")]
    known = known_urls(found.pop)
    assert (known(), known()) == (channel_urls("http://b:2"), channel_urls("http://a:1"))
    with pytest.raises(ConfigError, match="names neither http nor https"):
        known_urls("a:1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" , ", "names no URL"),
        ("10.0.0.1:8867", "names neither http nor https"),
        ("ftp://a", "names neither http nor https"),
        ("http://", "names neither http nor https"),
        ("http://a:99999", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("http://me:tOpSeCrEt@a:1", "has a user"),
        ("http://a?x=1", "has a user, a query"),
        ("http://a/b c", "holds a space"),
        ("http://a/\nb", "holds a space"),
        ("http://ä", "holds a space or a character beyond ASCII"),
    ],
)
def test_invalid_url_is_one_sentence_without_the_url(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        channel_urls(text)
    assert "tOpSeCrEt" not in str(caught.value)
    assert caught.value.__suppress_context__, "a traceback has no password either"
    with pytest.raises(ConfigError, match=f"a URL in siblings {words}"):
        channel_urls(text, "siblings")


def test_plain_channels_of_other_hosts_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_plain_channels("http://127.0.0.1:1,https://relay")
        assert caplog.text == ""
        warn_of_plain_channels("http://relay:1,https://relay,http://10.0.0.1")
    assert "the sync channel http://relay:1/sync, http://10.0.0.1:80/sync is not encrypted" in caplog.text
