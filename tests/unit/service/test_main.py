"""The command: one sentence and a documented exit code for each error, and an orderly end."""

import configparser
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from _patience import longest
from _processes import free_port, poll

import pubsub_lib
from pubsub_lib import Store
from pubsub_lib.command.exit_codes import USAGE
from pubsub_lib.config.options import OPTIONS
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError, DriverError, PubSubError, StoreUnavailable, TransportError
from pubsub_lib.http_limits import MAX_CONNECTIONS
from pubsub_lib.service import main as main_module
from pubsub_lib.service.main import main, state_of
from pubsub_zmq.backlog import MAX_UNREAD
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.keyed_budget import KeyedBudget
from pubsub_zmq.unfinished import MAX_TOGETHER
from tests.e2e.warm_start import Running, WarmProcess

ROOT = Path(__file__).resolve().parents[3]
LONG = longest(120.0)

Start = Callable[..., Running]


@pytest.fixture(autouse=True)
def _no_logging_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """``main`` must not configure the log of the tests' process; only the started processes do that."""
    monkeypatch.setattr(main_module, "_set_up_logging", lambda config_file, level: {})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "net.conf"
    path.write_text(
        f"[pubsub]\nstore_url = sqlite:///{tmp_path}/net.db\nenable_pub_sub = true\n"
        f"pub_sub_driver = zmq_pubsub_driver\npublisher_bind_address = 127.0.0.1\n"
        f"publisher_port = {free_port()}\nservice_name = api-1\n"
        f"publisher_multiproc_socket = {tmp_path}/hop/socket\n"
        f"[publisher_service]\nmetrics_port = {free_port()}\n"
    )
    return path


@pytest.fixture
def start(config: Path) -> Iterator[Start]:
    """Start the command in its own process; the process is always ended with the test."""
    started: list[Running] = []

    def run(*arguments: str, **environment: str) -> Running:
        process = WarmProcess(["-m", "pubsub_lib.service", "--config-file", str(config), *arguments], environment)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def live(config: Path) -> int:
    """Wait for the process id in the lock of the socket: the service runs."""
    with Store(f"sqlite:///{config.parent}/net.db") as store:
        return len(store.directory.live())


def serving(config: Path) -> bool:
    return (config.parent / "net.db").exists() and live(config) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (DriverError("x"), 2),
        (TransportError("x"), 3),
        (StoreUnavailable("x"), 4),
    ],
)
def test_exit_codes(
    error: PubSubError, code: int, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object) -> str:
        raise error

    monkeypatch.setattr("pubsub_lib.service.main.check", failing)
    assert main(["--check", "--config-file", str(config)]) == code
    assert capsys.readouterr().err == "publisher-service: x\n"


def test_check_prints_the_service_and_opens_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--config-file", str(config)]) == 0
    output = capsys.readouterr()
    assert output.out.startswith(
        "the configuration is good: service 'api-1' sends by zmq_pubsub_driver at tcp://127.0.0.1:"
    )
    assert sorted(each.name for each in config.parent.iterdir()) == ["net.conf"]


@pytest.mark.parametrize("damage", ["", "publishers_ips = 10.0.0.9, 127.0.0.9\ndiscovery_interval = 0\n"])
def test_check_names_the_variables_that_replace_options_of_the_file(
    damage: str, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PUBSUB__STORE_URL", f"sqlite:///{config.parent}/other.db")
    monkeypatch.setenv("OS_PUBSUB__SERVICE_NAME", "api-2")
    config.write_text(config.read_text().replace("[pubsub]\n", f"[pubsub]\n{damage}"))
    assert main(["--check", "--config-file", str(config)]) == (2 if damage else 0)
    output = capsys.readouterr()
    assert output.err.splitlines()[0] == (
        "publisher-service: these environment variables take precedence over the file: OS_PUBSUB__SERVICE_NAME, "
        "OS_PUBSUB__STORE_URL; unset those that are wrong"
    )
    assert damage or "service 'api-2'" in output.out


def test_service_logs_the_variables_that_replace_options_of_the_file(
    config: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.service.main.run", lambda settings, service, reload: 0)
    with caplog.at_level("INFO", "pubsub_lib.service.main"):
        assert main(["--config-file", str(config)]) == 0
        assert "environment" not in caplog.text
        monkeypatch.setenv("OS_PUBSUB__SERVICE_NAME", "api-2")
        assert main(["--config-file", str(config)]) == 0
    assert caplog.text.count("take precedence over the file: OS_PUBSUB__SERVICE_NAME") == 1


def test_check_refuses_a_misspelt_variable_and_a_start_logs_it(
    config: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentence = "the environment variable OS_PUBSUB__SERVICE_NAEM is not read; did you mean OS_PUBSUB__SERVICE_NAME?"
    monkeypatch.setenv("OS_PUBSUB__SERVICE_NAEM", "tOpSeCrEt")
    assert main(["--check", "--config-file", str(config)]) == USAGE
    assert capsys.readouterr().err == f"publisher-service: {sentence}\n"
    monkeypatch.setattr("pubsub_lib.service.main.run", lambda settings, service, reload: 0)
    caplog.clear()
    assert main(["--config-file", str(config)]) == 0
    assert [each.getMessage() for each in caplog.records if "variable" in each.getMessage()] == [sentence]


def test_check_warns_of_an_unverified_database_server(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    config.write_text(config.read_text().replace("sqlite:///", "postgresql://me:tOpSeCrEt@db/"))
    assert main(["--check", "--config-file", str(config)]) == 0
    assert caplog.text.count("the database server db is not verified") == 1
    assert "tOpSeCrEt" not in caplog.text


def test_check_of_a_relay_names_its_topics_and_what_is_above(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = config.read_text().replace("service_name = api-1", "service_name = relay-1\ntopics = a, b")
    text = text.replace("[publisher_service]", "[publisher_service]\nrole = relay")
    config.write_text(text)
    assert main(["--check", "--config-file", str(config)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(
        "the configuration is good: relay 'relay-1' sends by zmq_pubsub_driver at tcp://127.0.0.1:"
    )
    assert output.endswith(", topics a, b, from the origin services in the directory\n")
    config.write_text(text.replace("topics = a, b", "topics = a\nparents = tcp://127.0.0.1:9, tcp://127.0.0.1:8"))
    assert main(["--check", "--config-file", str(config)]) == 0
    assert capsys.readouterr().out.endswith(", topics a, from tcp://127.0.0.1:9, tcp://127.0.0.1:8\n")
    bare = "topics = a\nparents = tcp://127.0.0.1:9\nsync_url = http://127.0.0.1:7,http://127.0.0.1:8"
    found = [each for each in text.replace("topics = a, b", bare).splitlines() if not each.startswith("store_url")]
    config.write_text("\n".join(found))
    known = (
        ", topics a, from tcp://127.0.0.1:9, syncs from http://127.0.0.1:7/sync, http://127.0.0.1:8/sync, no database"
    )
    assert main(["--check", "--config-file", str(config)]) == 0
    assert capsys.readouterr().out.endswith(f"{known}\n")
    assert main(["--check", "--connect", "--config-file", str(config)]) == 0
    assert capsys.readouterr().out.endswith(f"{known}; folders, sockets and ports are available\n")
    config.write_text("\n".join(each for each in found if not each.startswith("sync_url")))
    assert main(["--check", "--config-file", str(config)]) == 0
    alone = ", topics a, from tcp://127.0.0.1:9, syncs from the current parent, no database\n"
    assert capsys.readouterr().out.endswith(alone)
    config.write_text(text.replace("topics = a, b", ""))
    assert main(["--check", "--config-file", str(config)]) == USAGE
    assert "needs named topics" in capsys.readouterr().err


def test_check_of_a_standby_names_where_it_answers(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    standby = "[publisher_service]\nrole = standby\nserve_syncs = true"
    config.write_text(config.read_text().replace("[publisher_service]", standby))
    assert main(["--check", "--config-file", str(config)]) == 0
    good = capsys.readouterr().out
    assert good.startswith("the configuration is good: standby 'api-1' answers first syncs at 127.0.0.1:")
    assert main(["--check", "--connect", "--config-file", str(config)]) == 4, "there is no database, and it makes none"
    assert "net.db" in capsys.readouterr().err
    with Store(f"sqlite:///{tmp_path}/net.db"):
        pass
    assert main(["--check", "--connect", "--config-file", str(config)]) == 0
    assert capsys.readouterr().out == f"{good.rstrip()}; database and port are available\n"
    assert not (tmp_path / "hop").exists()


def test_check_names_no_address_for_a_driver_that_binds_nothing(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connects = msgspec.structs.replace(ZmqDriver.capabilities, bind_based=False)
    monkeypatch.setattr(ZmqDriver, "capabilities", connects)
    assert main(["--check", "--config-file", str(config)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("the configuration is good: service 'api-1' sends by zmq_pubsub_driver, ")
    assert "tcp://" not in output


def test_unwritable_output_is_one_sentence(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["--check", "--config-file", str(config)]) == 5
        full.flush()  # as the interpreter does at its end
    output = capsys.readouterr().err
    assert output.startswith("publisher-service: the configuration is good, but the result cannot be written to")
    assert output.count("\n") == 1


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"publisher-service {pubsub_lib.__version__}\n"


@pytest.mark.parametrize("option", ["--version", "--sample-config", "--sample-unit"])
def test_unwritable_text_has_an_exit_code(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([option]) == 5
        full.flush()
    assert capsys.readouterr().err == (
        "publisher-service: the result cannot be written to standard output (No space left on device); check its "
        "redirection\n"
    )


@pytest.mark.parametrize("options", [["--check", "--version"], ["--sample-config", "--sample-unit"]])
def test_only_one_output_is_printed(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == USAGE
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("service_name = api-1\n", ""), "set service_name"),
        (("= zmq_pubsub_driver", "= carrier_pigeon"), "the driver 'carrier_pigeon' is not installed"),
        (("= zmq_pubsub_driver", "= zmq_pubsub_multiproc_driver"), "lacks the capability 'fan_out'"),
        (("sqlite:///", "no such://"), "the database URL cannot be read"),
        (("/hop/socket", "/" + "x" * 108), "the system allows 107"),
        (("/hop/socket", "/hop/"), "of a file; set publisher_multiproc_socket"),
        (("[pubsub]", "[pubsub]\npub_sub_multiproc_driver = zmq_pubsub_driver"), "because its senders bind"),
        (("[pubsub]", "[pubsub]\npub_sub_multiproc_driver = db_polling_pubsub_driver"), "because it sends no messages"),
        (("metrics_port = ", "metrics_port = 1"), "metrics_port"),
    ],
)
def test_check_names_the_error(
    change: tuple[str, str], sentence: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text().replace(*change))
    assert main(["--check", "--config-file", str(config)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("publisher-service: ")
    assert sentence in output
    assert output.count("\n") == 1
    assert "Traceback" not in output


def test_origin_service_with_parents_and_without_the_database_is_one_sentence(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [each for each in config.read_text().splitlines() if not each.startswith("store_url")]
    config.write_text("\n".join(lines).replace("[pubsub]", "[pubsub]\nparents = tcp://127.0.0.1:9"))
    for options in ([], ["--check"]):
        assert main([*options, "--config-file", str(config)]) == USAGE
        output = capsys.readouterr().err
        assert output.startswith("publisher-service: an origin service sends the changes in the database, but")
        assert output.count("\n") == 1
        assert "set role = relay in [publisher_service]" in output


def test_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-file", "/nowhere/net.conf"]) == 2
    assert "'/nowhere/net.conf' cannot be read" in capsys.readouterr().err


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "publisher-service: the configuration file '{file}' cannot be read: "),
        (b"\x7fELF\xff\xfe", "publisher-service: the configuration file '{file}' cannot be read: it is not text"),
        ("[DEFAULT]\ndebug = perhaps\n", "publisher-service: the logging options in '{file}' cannot be used: "),
    ],
)
def test_invalid_logging_exits_with_2(tmp_path: Path, text: str | bytes | None, sentence: str) -> None:
    file = tmp_path / "service.conf"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = subprocess.run(
        [sys.executable, "-m", "pubsub_lib.service", "--config-file", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(sentence.format(file=file))


def test_service_notifies_systemd_and_stops_in_order_on_sigterm(start: Start, config: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(LONG)
        process = start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert systemd.recv(100) == b"READY=1"
        assert poll(lambda: serving(config), LONG)
        process.send_signal(signal.SIGTERM)
        assert systemd.recv(100) == b"STOPPING=1"
    _, output = process.communicate(timeout=LONG)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert live(config) == 0


def test_sighup_reloads_the_file_and_the_service_runs_on(start: Start, config: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(LONG)
        process = start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert systemd.recv(100) == b"READY=1"
        config.write_text(f"[DEFAULT]\ndebug = true\n{config.read_text()}trim_interval = 7\nlease = 20\n")
        process.send_signal(signal.SIGHUP)
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", systemd.recv(100))
        assert systemd.recv(100) == b"READY=1"
        assert systemd.recv(100).startswith(b"WATCHDOG=1")  # reloads must not delay the pings
        config.write_text("[pubsub]\n")
        process.send_signal(signal.SIGHUP)
        assert systemd.recv(100).startswith(b"RELOADING=1")
        assert systemd.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=LONG)
    assert process.returncode == 0, output
    assert "changed and in use: debug in [DEFAULT], trim_interval in [publisher_service]" in output
    assert "need a restart of the service: lease in [publisher_service]" in output
    assert "is not reloaded, and the service runs on with the old one: " in output
    assert "Traceback" not in output


def test_watchdog_ping_is_withheld_only_for_hanging_threads() -> None:
    away = "the changelog is not being followed"
    assert state_of([], []) == "WATCHDOG=1\nSTATUS=ready"
    assert state_of([], [away]) == f"WATCHDOG=1\nSTATUS={away}"
    hanging = "the thread 'leases' has been hanging for 281 s"
    assert state_of([hanging], [away]) == f"STATUS={hanging}"


def test_second_service_on_the_same_socket_names_the_first(start: Start, config: Path) -> None:
    config.write_text(config.read_text().replace("= zmq_pubsub_driver", "= memory"))  # which binds no port
    first = start()
    assert poll(lambda: serving(config), LONG)
    second = start()
    _, output = second.communicate(timeout=LONG)
    assert second.returncode == 3, output
    last = output.strip().splitlines()[-1]
    assert f"hop/socket' is held by process {first.pid} (" in last
    assert "Traceback" not in output
    assert first.poll() is None


def test_used_port_is_one_sentence(start: Start, config: Path) -> None:
    port = int(config.read_text().rpartition("metrics_port = ")[2])
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        process = start()
        _, output = process.communicate(timeout=LONG)
    assert process.returncode == 3
    assert f"127.0.0.1:{port}" in output
    assert "Traceback" not in output


def test_unavailable_database_is_one_sentence(start: Start, config: Path) -> None:
    config.write_text(config.read_text().replace("/net.db", "/no/such/folder/net.db"))
    process = start()
    _, output = process.communicate(timeout=LONG)
    assert process.returncode == 4, output
    assert "Traceback" not in output


def test_unit_file_uses_existing_options_and_exit_codes() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "etc" / "publisher-service.service")
    service = unit["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert (program, command) == ("/usr/bin/env", "publisher-service")
    options = main_module._parser().parse_args(arguments)
    assert not options.check
    assert options.config_file == main_module.DEFAULT_FILE
    # With one of these options systemd restarts the service without end, although the main process's code prevents it.
    assert not {"ExecStartPre", "ExecStartPost", "ExecCondition"} & set(service)
    assert service["RestartPreventExitStatus"] == str(USAGE)
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryMode"]) == ("zmq_pubsub", "0700")


def test_unit_file_allows_writing_the_samples_paths() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "etc" / "publisher-service.service")
    service = unit["Service"]
    assert service["ProtectSystem"] == "strict"
    writable = (f"/var/lib/{service['StateDirectory']}", f"/var/run/{service['RuntimeDirectory']}")
    sample = {option.name: option.sample_default or option.default for option in OPTIONS}
    named = {
        "store_url": sample["store_url"].removeprefix("sqlite:///"),
        "journal_folder": sample["journal_folder"],
        "publisher_multiproc_socket": sample["publisher_multiproc_socket"],
    }
    for name, path in named.items():
        assert path.startswith(tuple(f"{folder}/" for folder in writable)), name


def systemd_analyze() -> str:
    """The program; without it the test is skipped."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed, so systemd does not judge the unit")
    return program


def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    program = systemd_analyze()
    unit = (ROOT / "etc" / "publisher-service.service").read_text()
    for text, understood in ((unit, True), (unit.replace("TimeoutStopSec", "TimeoutStopsec"), False)):
        (tmp_path / "publisher-service.service").write_text(text)
        command = [program, "verify", "--man=no", str(tmp_path / "publisher-service.service")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
        output = [line for line in done.stderr.splitlines() if "publisher-service.service:" in line]
        assert (output == []) is understood, output


def test_systemd_understands_the_documented_credential(tmp_path: Path) -> None:
    (lines,) = re.findall(r'title="override.conf"\n(.*?)```', (ROOT / "docs" / "security.md").read_text(), re.DOTALL)
    unit = (ROOT / "etc" / "publisher-service.service").read_text()
    (tmp_path / "publisher-service.service").write_text(f"{unit}\n{lines}")
    command = [systemd_analyze(), "verify", "--man=no", str(tmp_path / "publisher-service.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
    assert [line for line in done.stderr.splitlines() if "publisher-service.service:" in line] == []
    assert "LoadCredential=pubsub_lib.conf:" in lines


def test_unit_is_hardened() -> None:
    """systemd's own measure is at most 3.0 of 10."""
    unit = str(ROOT / "etc" / "publisher-service.service")
    command = [systemd_analyze(), "security", "--offline=true", "--threshold=30", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is older than version 250, and cannot judge a file")
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_with_systemd_are_skipped_with_a_reason_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(pytest.skip.Exception, match="systemd-analyze is not installed"):
        systemd_analyze()


def test_unit_bounds_memory_and_tasks_above_the_bounds_of_the_options() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "etc" / "publisher-service.service")
    limits = Limits()
    transaction = limits.max_transaction_bytes + 200 * limits.max_transaction_changes
    # As docs/security.md has them.
    needed = 67 * KeyedBudget.AUTOMATIC + 4 * transaction + 131 * 2**20
    needed += 32 * MAX_TOGETHER + 25 * MAX_UNREAD
    memory = unit["Service"]["MemoryMax"]
    assert memory.endswith("G")
    assert 1.3 * needed < int(memory[:-1]) * 2**30 < 2 * needed
    assert 4 * MAX_CONNECTIONS < int(unit["Service"]["TasksMax"]) < 1000


def test_internal_error_is_one_sentence(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> str:
        raise KeyError("a bug")

    monkeypatch.setattr("pubsub_lib.service.main.check", broken)
    assert main(["--check", "--config-file", str(config)]) == 70
    assert "internal error (KeyError('a bug')); please report it" in capsys.readouterr().err


def test_endpoint_is_open_until_the_goodbye_was_sent(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica below reads its syncs there until the goodbye leads it to another parent."""
    done: list[str] = []

    class Serving:
        failure, uuid, address = None, "0" * 32, ""

        def __init__(self, *given: object) -> None:
            pass

        def __enter__(self) -> "Serving":
            return self

        def __exit__(self, *given: object) -> None:
            done.append("goodbye")

        def serve_syncs_at(self, port: int) -> None:
            pass

    class Endpoint:
        port = 8867

        def close(self) -> None:
            done.append("endpoint closed")

    monkeypatch.setattr(main_module, "_KINDS", dict.fromkeys(main_module._KINDS, Serving))
    monkeypatch.setattr(main_module, "_endpoint", lambda *given: Endpoint())
    monkeypatch.setattr(main_module, "_wait", lambda *given: None)
    assert main(["--config-file", str(config)]) == 0
    assert done == ["goodbye", "endpoint closed"]

    def broken(*given: object) -> None:
        raise StoreUnavailable("planted")

    monkeypatch.setattr(main_module, "_wait", broken)
    assert main(["--config-file", str(config)]) != 0
    assert done == 2 * ["goodbye", "endpoint closed"]
