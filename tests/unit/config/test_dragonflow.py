"""A Dragonflow file: each of its options is read or named, and the docs' table is the one that is used."""

import logging
from pathlib import Path

import pytest
from oslo_config import cfg

from pubsub_lib.config import dragonflow, installed_drivers, options
from pubsub_lib.config.pubsub import GROUP
from pubsub_lib.config.reading import Configuration
from pubsub_lib.errors import DriverError
from pubsub_lib.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "dragonflow.md"
STORE = "[pubsub]\nstore_url = sqlite:///net.db\n"
OURS = {
    (option.dest, group)
    for group, opts in ((GROUP, options.OPTIONS), (options.SERVICE_GROUP, options.SERVICE))
    for option in opts
}


def warned(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    path = tmp_path / "df.conf"
    path.write_text(text)
    with caplog.at_level(logging.WARNING, "pubsub_lib.config.reading"):
        Settings.from_file(path)
    return [each.getMessage() for each in caplog.records if each.name == "pubsub_lib.config.reading"]


def test_options_without_effect_and_typos_are_named_in_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (warning,) = warned(
        tmp_path,
        caplog,
        "[df]\nlocal_ip = 10.0.0.5\npublisher_timeout = 300\nmonitor_table_poll_time = 30\napps_list = l2\n"
        f"publisher_prt = 1\nwhatever = 2\n{STORE}",
    )
    assert "publisher_timeout (set lease in [publisher_service])" in warning
    assert "monitor_table_poll_time (set follow_interval in [publisher_service])" in warning
    assert "publisher_prt (unknown; did you mean 'publisher_port'?)" in warning
    assert "apps_list, " in warning
    assert "whatever (unknown)" in warning
    assert "local_ip" not in warning
    assert "\n" not in warning


def test_file_with_only_read_options_causes_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = {"enable_df_pub_sub": "false", "publisher_port": "99"}
    given = "\n".join(f"{name} = {lines.get(name, 'x')}" for name in options.dragonflow_names() if name in lines)
    assert warned(tmp_path, caplog, f"[df]\n{given}\n{STORE}") == []


def test_program_with_its_own_conf_is_warned_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "df.conf"
    path.write_text(f"[df]\ndb_sync_time = 120\n{STORE}")
    conf = cfg.ConfigOpts()
    conf(args=[], project="x", default_config_files=[str(path)], default_config_dirs=[])
    with caplog.at_level(logging.WARNING, "pubsub_lib.config.reading"):
        Settings.from_conf(conf)
    assert "db_sync_time (set recount_time in [pubsub])" in caplog.text


@pytest.mark.parametrize("name", sorted(dragonflow.REPLACED_DRIVERS))
@pytest.mark.parametrize("option", ["pub_sub_driver", "pub_sub_multiproc_driver"])
def test_missing_driver_is_rejected_with_its_replacement(option: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "df.conf"
    path.write_text(f"[df]\nenable_df_pub_sub = true\n{option} = {name}\n{STORE}")
    sentence = f"'{name}' is not installed.*: set {dragonflow.REPLACED_DRIVERS[name].by} in its"
    with pytest.raises(DriverError, match=sentence):
        Settings.from_file(path)


def test_replacements_of_options_and_drivers_exist() -> None:
    for name, replaced in dragonflow.REPLACED.items():
        if replaced.by:
            ours, _, group = replaced.by.partition(" in ")
            assert (ours, group.strip("[]")) in OURS, name
        assert replaced.why.endswith(".")
    assert {each.by for each in dragonflow.REPLACED_DRIVERS.values()} <= set(installed_drivers.packages())


def test_a_driver_is_replaced_by_the_one_over_the_same_transport() -> None:
    transports = {each.partition("_pubsub")[0] for each in installed_drivers.packages()}
    for name, replaced in dragonflow.REPLACED_DRIVERS.items():
        same = [each for each in transports if name.rpartition(".")[2].lower().startswith(each)]
        assert [replaced.by.partition("_")[0]] == (same or ["zmq"]), name
    assert "redis" in transports


def test_no_option_is_both_read_and_without_effect() -> None:
    assert not set(options.dragonflow_names()) & set(dragonflow.REPLACED)


def test_page_names_every_option_and_driver_of_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sections = {each.partition("\n")[0]: each for each in page.split("\n## ")}
    for name in options.dragonflow_names():
        assert f"| `{name}` |" in sections["Options that are read from `[df]`"]
    for heading, table in (("Options without effect", dragonflow.REPLACED), ("Drivers", dragonflow.REPLACED_DRIVERS)):
        for name in table:
            assert f"`{name}`" in sections[heading]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("publisher_prt", "publisher_port"),
        ("publishers_ip", "publishers_ips"),
        ("enable_df_pubsub", "enable_df_pub_sub"),
    ],
)
def test_typo_is_distinguished_from_a_foreign_option(name: str, meant: str) -> None:
    known = options.dragonflow_names()
    assert dragonflow.typos([name, "local_ip", "apps_list", "quota_driver"], known) == {name: meant}


def test_last_file_counts_under_either_name(tmp_path: Path) -> None:
    """In one file it is ``[pubsub]``."""
    ours, theirs, both = (tmp_path / name for name in ("ours.conf", "df.conf", "both.conf"))
    ours.write_text(f"{STORE}publisher_port = 9000\n")
    theirs.write_text("[df]\npublisher_port = 9001\n")
    both.write_text(f"[df]\npublisher_port = 9001\n{STORE}publisher_port = 9000\n")
    for files, port in (([ours, theirs], 9001), ([theirs, ours], 9000), ([both], 9000)):
        conf = cfg.ConfigOpts()
        conf(args=[], project="x", default_config_files=[str(each) for each in files], default_config_dirs=[])
        assert Configuration.of(conf).values(GROUP, options.OPTIONS)["publisher_port"] == port
