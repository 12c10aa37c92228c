"""Options from the fields of structs: type, bounds, default, description and old names come from the annotation."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from oslo_config import cfg

from pubsub_lib.config.fields import checked_options, option, opts_of, values_of
from pubsub_lib.errors import ConfigError


class Toy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1), option("Where.", secret=True, sample="toy://x")]
    on: Annotated[bool, option("Whether.")] = False
    count: Annotated[int, Meta(ge=2, le=7), option("How many.", old_names=("number",))] = 3
    wait: Annotated[float, Meta(ge=0.5, le=9.0), option("How long.", dragonflow_names=("old_wait",))] = 1.0
    mode: Annotated[Literal["a", "b"], option("Which.")] = "a"
    names: Annotated[tuple[str, ...], option("Who.")] = ("x",)
    inner: int = 5


def by_name() -> dict[str, Any]:
    return {each.name: each for each in opts_of(Toy, "toy_")}


def test_only_described_fields_are_options() -> None:
    assert list(by_name()) == ["toy_url", "toy_on", "toy_count", "toy_wait", "toy_mode", "toy_names"]


def test_an_option_has_what_its_field_declares() -> None:
    found = by_name()
    assert (found["toy_url"].help, found["toy_url"].secret, found["toy_url"].sample_default) == (
        "Where.",
        True,
        "toy://x",
    )
    assert isinstance(found["toy_on"], cfg.BoolOpt)
    assert (found["toy_count"].type.min, found["toy_count"].type.max, found["toy_count"].default) == (2, 7, 3)
    assert (found["toy_wait"].type.min, found["toy_wait"].type.max, found["toy_wait"].default) == (0.5, 9.0, 1.0)
    assert list(found["toy_mode"].type.choices) == ["a", "b"]
    assert found["toy_names"].default == ["x"]
    assert [(old.group, old.name) for old in found["toy_count"].deprecated_opts] == [(None, "number")]
    assert [(old.group, old.name) for old in found["toy_wait"].deprecated_opts] == [("df", "old_wait")]


def test_required_field_has_an_empty_default() -> None:
    assert by_name()["toy_url"].default == ""


@given(st.integers(2, 7), st.floats(0.5, 9.0), st.sampled_from(["a", "b"]), st.booleans())
def test_values_of_a_file_make_the_struct(count: int, wait: float, mode: Literal["a", "b"], on: bool) -> None:
    conf = cfg.ConfigOpts()
    conf.register_opts(opts_of(Toy, "toy_"), group="toy")
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in {"url": "u", "count": count, "wait": wait, "mode": mode, "on": on, "names": ["p", "q"]}.items():
        conf.set_override(f"toy_{name}", value, group="toy")
    made = Toy(**values_of(Toy, conf.toy, "toy_"))
    assert made == Toy(url="u", count=count, wait=wait, mode=mode, on=on, names=("p", "q"))


def test_an_option_is_read_by_its_old_names(tmp_path: Any) -> None:
    path = tmp_path / "toy.conf"
    path.write_text("[toy]\nnumber = 5\n[df]\nold_wait = 2.5\n")
    conf = cfg.ConfigOpts()
    conf.register_opts(opts_of(Toy), group="toy")
    conf([], default_config_files=[str(path)], default_config_dirs=[])
    assert (conf.toy.count, conf.toy.wait) == (5, 2.5)


class Exclusive(msgspec.Struct):
    wait: Annotated[float, Meta(gt=0), option("How long.")] = 1.0


class Unreadable(msgspec.Struct):
    table: Annotated[dict[str, int] | None, option("What.")] = None


class Numbers(msgspec.Struct):
    ports: Annotated[tuple[int, ...], option("Where.")] = (1,)


class Made(msgspec.Struct):
    name: Annotated[str, option("Who.")] = msgspec.field(default_factory=str)


class Choice(msgspec.Struct):
    level: Annotated[Literal[1, 2], option("How much.")] = 1


class Needed(msgspec.Struct):
    count: Annotated[int, option("How many.")]


class Misspelt(msgspec.Struct):
    name: Annotated[str, Meta(description="Who.", extra={"oldnames": ("x",)})] = ""


@pytest.mark.parametrize(
    ("struct", "reason"),
    [
        (Exclusive, "exclusive bound"),
        (Unreadable, "no option of an INI"),
        (Numbers, "lists of text only"),
        (Made, "default_factory"),
        (Choice, "choices that are not text"),
        (Needed, "only text may be required"),
        (Misspelt, "unknown keys .*oldnames"),
    ],
)
def test_a_field_that_no_option_can_have_is_refused(struct: type[msgspec.Struct], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        opts_of(struct)


@pytest.mark.parametrize(
    ("given_options", "named"),
    [
        ({"url": "x", "count": 8}, "count"),
        ({"url": "x", "cuont": 3}, "cuont"),
        ({"url": "x", "wait": float("nan")}, "wait"),
    ],
)
def test_a_drivers_wrong_option_is_named_with_its_group(given_options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"toy cannot use its options: .*{named}.*; correct \[toys\]"):
        checked_options(Toy, given_options, "toy", "toys")
