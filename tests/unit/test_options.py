"""The options of an INI file: the spec's names and defaults, and the generated sample."""

import io
import threading
from pathlib import Path
from typing import get_type_hints

import pytest
from oslo_config import cfg, generator

from pubsub_lib import options
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.timing import Timing
from pubsub_lib.store import StoreSettings

ETC = Path(__file__).parents[2] / "etc"

SPEC = {
    "pub_sub_driver": "zmq_pubsub_driver",
    "publishers_ips": ["$local_ip"],
    "publisher_port": 8866,
    "pub_sub_use_multiproc": True,
    "publisher_transport": "tcp",
    "publisher_bind_address": "*",
    "pub_sub_multiproc_driver": "zmq_pubsub_multiproc_driver",
    "publisher_multiproc_socket": "/var/run/zmq_pubsub/zmq-publisher-socket",
}


@pytest.mark.parametrize("name", sorted(SPEC))
def test_the_specs_options_keep_name_default_and_old_group(name: str) -> None:
    option = next(option for option in options.PUBSUB if option.name == name)
    assert option.default == SPEC[name]
    assert [(old.group, old.name) for old in option.deprecated_opts] == [("df", None)]


def test_the_specs_switch_is_off_by_default_and_read_under_its_old_name() -> None:
    option = next(option for option in options.PUBSUB if option.name == "enable_pub_sub")
    assert option.default is False
    assert ("df", "enable_df_pub_sub") in [(old.group, old.name) for old in option.deprecated_opts]


@pytest.mark.parametrize(("opts", "struct"), [(options.TIMING, Timing()), (options.LIMITS, Limits())])
def test_every_field_of_a_struct_has_its_option_with_the_same_default(
    opts: tuple[cfg.Opt, ...], struct: Timing | Limits
) -> None:
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    assert {option.name: option.default for option in opts} == fields


def test_the_stores_settings_have_their_options_with_the_same_defaults() -> None:
    fields = {f"store_{name}": getattr(StoreSettings(), name) for name in StoreSettings.__struct_fields__}
    assert {option.name: option.default for option in options.STORE} == fields


def test_the_stores_options_and_settings_have_one_range() -> None:
    """Otherwise the settings refuse a value of the file, by a name that is not in the file."""
    hints = get_type_hints(StoreSettings, include_extras=True)
    maximum = {f"store_{name}": hint.__metadata__[0].le for name, hint in hints.items()}
    assert {option.name: vars(option.type)["max"] for option in options.STORE} == maximum


def test_maximum_of_every_time_fits_a_timer() -> None:
    floats = [each for each in (*options.OPTIONS, *options.SERVICE) if isinstance(each, cfg.FloatOpt)]
    maximum = {each.name: vars(each.type)["max"] for each in floats}
    assert {name for name, seconds in maximum.items() if seconds is None or seconds > threading.TIMEOUT_MAX} == set()


def test_handling_has_its_options_with_the_same_defaults() -> None:
    assert [option.default for option in options.HANDLING] == [*_values(HandlerPolicy())]


def _values(struct: HandlerPolicy) -> list[object]:
    return [getattr(struct, name) for name in struct.__struct_fields__]


def test_every_option_has_a_help_sentence() -> None:
    for _, opts in options.list_opts():
        for option in opts:
            assert option.help
            assert option.help.endswith("."), option.name


def test_list_opts_holds_the_drivers_groups() -> None:
    groups = ["pubsub", "publisher_service", "pubsub_ipc", "pubsub_memory", "pubsub_sql", "pubsub_zmq"]
    assert [group for group, _ in options.list_opts()] == groups


def test_registering_twice_is_harmless() -> None:
    conf = cfg.ConfigOpts()
    options.register(conf, "memory")
    options.register(conf, "memory")


def test_the_sample_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(["--config-file", str(ETC / "oslo-config-generator.conf")], default_config_dirs=[])
    written = io.StringIO()
    generator.generate(conf, output_file=written)
    assert written.getvalue() == (ETC / "pubsub_lib.conf.sample").read_text(), (
        "run: oslo-config-generator --config-file etc/oslo-config-generator.conf"
    )
