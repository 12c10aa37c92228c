"""The options of an INI file: the spec's names and defaults, their only declaration, and the generated sample."""

import ast
import io
import threading
from pathlib import Path

import msgspec
import pytest
from oslo_config import cfg, generator

from pubsub_lib.config import options
from pubsub_lib.config.program import ProgramSettings, StoreSettings
from pubsub_lib.config.pubsub import PubSubSettings
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.timing import Timing
from pubsub_lib.journal import JournalSettings

ROOT = Path(__file__).parents[3]
ETC = ROOT / "etc"

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
    assert [(old.group, old.name) for old in option.deprecated_opts] == [("df", name)]


def test_the_specs_switch_is_off_by_default_and_read_under_its_old_name() -> None:
    option = next(option for option in options.PUBSUB if option.name == "enable_pub_sub")
    assert option.default is False
    assert ("df", "enable_df_pub_sub") in [(old.group, old.name) for old in option.deprecated_opts]


def test_no_option_is_declared_beside_the_structs() -> None:
    """Each option has one declaration: a field of a frozen struct."""
    found = [
        f"{path.relative_to(ROOT)}: {node.value.id}.{node.attr}"
        for folder in ("pubsub_lib", "drivers")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.endswith("Opt") and isinstance(node.value, ast.Name)
    ]
    allowed = "pubsub_lib/config/fields.py: cfg."
    assert [each for each in found if not each.startswith(allowed) and not each.endswith(": cfg.Opt")] == []
    assert any(each.startswith(allowed) for each in found)


@pytest.mark.parametrize(
    ("struct", "prefix", "others"),
    [
        (ProgramSettings, "", set()),
        (PubSubSettings, "", set()),
        (StoreSettings, "store_", set()),
        (Timing, "", set()),
        (Limits, "", set()),
        (HandlerPolicy, "handler_", set()),
        (JournalSettings, "journal_", {"to_parquet"}),
    ],
)
def test_name_of_an_option_is_the_field_name_after_the_prefix(
    struct: type[msgspec.Struct], prefix: str, others: set[str]
) -> None:
    names = {option.name for option in options.OPTIONS}
    wanted = {prefix + field for field in struct.__struct_fields__ if field not in others}
    assert wanted <= names


def test_name_of_a_service_option_is_the_field_name() -> None:
    assert [option.name for option in options.SERVICE] == list(ServiceSettings.__struct_fields__)


def test_names_are_unique() -> None:
    names = options.names()
    assert len(names) == len(set(names))
    assert {"queue_limit", "max_handler_backoff", "enable_df_pub_sub"} <= set(names)  # the old ones


def test_maximum_of_every_time_fits_a_timer() -> None:
    floats = [each for each in (*options.OPTIONS, *options.SERVICE) if isinstance(each, cfg.FloatOpt)]
    maximum = {each.name: vars(each.type)["max"] for each in floats}
    assert {name for name, seconds in maximum.items() if seconds is None or seconds > threading.TIMEOUT_MAX} == set()


def test_every_time_is_described_in_seconds() -> None:
    floats = [each for each in (*options.OPTIONS, *options.SERVICE) if isinstance(each, cfg.FloatOpt)]
    assert [each.name for each in floats if not str(each.help).endswith(" In seconds.")] == []


def test_every_option_has_a_help_sentence() -> None:
    for _, opts in options.list_opts():
        for option in opts:
            assert option.help
            assert option.help.endswith("."), option.name


def test_list_opts_holds_the_drivers_groups() -> None:
    drivers = ["ipc", "memory", "nats", "pgnotify", "redis", "sql", "zmq"]
    groups = ["pubsub", "publisher_service", *(f"pubsub_{driver}" for driver in drivers)]
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
