"""Container images, compose file and manifests: what can be checked without a container runtime.

Each command line is run or parsed by the program that it names, each INI file is checked by ``publisher-service
--check``, and names, ports and paths of the files agree.
"""

import configparser
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

import pubsub_lib
from pubsub_lib.service.main import DEFAULT_FILE
from pubsub_lib.service.main import _parser as service_parser
from tests.e2e.service_host import LONG, ROOT

CONTAINER: Final = ROOT / "etc" / "container"
DOCKERFILE: Final = CONTAINER / "Dockerfile"
COMPOSE: Final = yaml.safe_load((CONTAINER / "compose.yml").read_text())["services"]
MANIFESTS: Final = {
    each["kind"]: each
    for each in yaml.safe_load_all((ROOT / "etc" / "kubernetes" / "publisher-service.yml").read_text())
}
POD: Final = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
CONTROLLERS: Final = ("controller-1", "controller-2")
STORE: Final = "OS_PUBSUB__STORE_URL"
USER: Final = 10001
PINNED: Final = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-[\w.-]+)?")
"""An image with a version of at least two numbers."""


class Stage(msgspec.Struct):
    """One FROM of the Dockerfile: the instructions, those of the stage that it continues included."""

    image: str
    instructions: list[tuple[str, str]]

    def last(self, name: str) -> str:
        """The arguments of the last instruction of this name, without options before CMD."""
        return [arguments for found, arguments in self.instructions if found == name][-1]

    def command(self, name: str) -> list[str]:
        """The list of ENTRYPOINT, CMD or HEALTHCHECK."""
        found: list[str] = json.loads(self.last(name)[self.last(name).index("[") :])
        return found

    def all(self, name: str) -> list[str]:
        """The arguments of each instruction of this name."""
        return [arguments for found, arguments in self.instructions if found == name]

    def variables(self) -> dict[str, str]:
        """ENV."""
        return dict(pair.split("=", 1) for each in self.all("ENV") for pair in each.split())


def stages() -> dict[str, Stage]:
    """The stages by name."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    current = Stage("", [])
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            image, _, stage = arguments.partition(" AS ")
            before = found[image].instructions if image in found else []
            current = found[stage] = Stage(image, list(before))
        else:
            current.instructions.append((name, arguments.strip()))
    return found


STAGES: Final = stages()


def kubernetes_ini(folder: Path) -> Path:
    """The INI file of the ConfigMap."""
    path = folder / "kubernetes.conf"
    path.write_text(MANIFESTS["ConfigMap"]["data"]["pubsub_lib.conf"])
    return path


@pytest.fixture(params=["compose", "kubernetes"])
def ini(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The INI file of either deployment."""
    return CONTAINER / "pubsub_lib.conf" if request.param == "compose" else kubernetes_ini(tmp_path)


def options_of(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path)
    return parser


def run(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(ROOT), str(ROOT / "drivers")])
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **environment}
    return subprocess.run(
        [sys.executable, *command], env=given, capture_output=True, text=True, check=False, timeout=LONG
    )


@pytest.mark.quick_variants(1)
def test_service_accepts_the_configuration_with_the_database_of_the_environment(ini: Path) -> None:
    """Unknown options, contradictions and two listeners on one port are errors of the check."""
    command = ("-m", "pubsub_lib.service", "--check", "--config-file", str(ini))
    done = run(*command, **{STORE: "postgresql://pubsub:secret@database/net"})
    assert done.returncode == 0, done.stderr
    assert " at tcp://*:8866, known to replicas as tcp://publisher" in done.stdout
    assert "store_url" not in options_of(ini)["pubsub"]
    assert run(*command).returncode == 2  # without the variable


def test_images_are_pinned_to_versions() -> None:
    of_ours = {"pubsub-lib", "pubsub-lib-controller"}
    images = [each.image for each in STAGES.values() if each.image not in STAGES]
    images += [each["image"] for each in COMPOSE.values()]
    images += [each["image"] for each in POD["containers"]]
    for image in images:
        assert PINNED.fullmatch(image), image
        name, _, tag = image.partition(":")
        assert name not in of_ours or tag == pubsub_lib.__version__
    assert of_ours < {each.partition(":")[0] for each in images}
    assert f"pubsub-lib:{pubsub_lib.__version__} ." in DOCKERFILE.read_text()


@pytest.mark.parametrize("image", ["python", "python:latest", "python:3", "postgres:bookworm", "a/b:main"])
def test_images_without_a_version_are_found(image: str) -> None:
    assert not PINNED.fullmatch(image)


def test_project_is_installed_from_copied_files_that_the_context_contains() -> None:
    sources = [each.split()[:-1] for each in STAGES["build"].all("COPY") + STAGES["controller"].all("COPY")]
    copied = {each for names in sources for each in names if not each.startswith(("--", "/"))}
    lines = (CONTAINER / "Dockerfile.dockerignore").read_text().splitlines()
    included = {each[1:] for each in lines if each.startswith("!")}
    assert copied == included
    assert all((ROOT / each).exists() for each in copied)
    assert {"pubsub_lib", "pubsub_pytest", "drivers"} < copied
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', " ".join(STAGES["build"].all("RUN")))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    assert {"service", "postgresql"} <= set(extras.split(","))


@pytest.mark.long
def test_copied_files_suffice_to_build_the_project(tmp_path: Path) -> None:
    """As the image does, but without the project's dependencies."""
    source, folder = tmp_path / "src", tmp_path / "dist"
    for *names, target in (each.split() for each in STAGES["build"].all("COPY")):
        for name in names:
            to = source / target / name if target.endswith("/") else source / target
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, to)
    done = run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.iterdir()
    with zipfile.ZipFile(wheel) as opened:
        found = set(opened.namelist())
    assert {"pubsub_lib/scripts.py", "pubsub_lib/service/pubsub_lib.conf.sample", "pubsub_zmq/driver.py"} < found


@pytest.mark.parametrize("name", ["service", "controller"])
def test_image_runs_as_a_user_without_rights(name: str) -> None:
    stage = STAGES[name]
    assert stage.last("USER") == f"{USER}:{USER}"
    assert f"--uid {USER} " in " ".join(stage.all("RUN"))
    after = [found for found, _ in stage.instructions]
    assert "RUN" not in after[after.index("USER") :]  # nothing is changed as another user afterwards
    for group in COMPOSE.values():
        assert "user" not in group
        assert not group.get("privileged")


def test_entry_point_is_the_service_and_its_command_line_is_valid() -> None:
    stage = STAGES["service"]
    assert stage.command("ENTRYPOINT") == ["publisher-service"]
    assert "command" not in COMPOSE["publisher"]
    (container,) = POD["containers"]
    assert "command" not in container
    for arguments in (stage.command("CMD"), container["args"]):
        options = service_parser().parse_args(arguments)
        assert options.config_file == DEFAULT_FILE
        assert not options.check


def test_controllers_accept_their_command_lines() -> None:
    entry, script = STAGES["controller"].command("ENTRYPOINT")
    assert (entry, script) == ("python", "/opt/controller/controller.py")
    source, target = STAGES["controller"].last("COPY").split()
    assert target == script
    lines = [STAGES["controller"].command("CMD"), *(COMPOSE[each]["command"] for each in CONTROLLERS)]
    assert [each[-1] for each in lines] == ["s1", "s1", "s2"]
    for arguments in lines:
        assert arguments[:2] == ["--config-file", DEFAULT_FILE]
        done = run(str(ROOT / source), "--config-file", "/nowhere/net.conf", *arguments[2:])
        assert done.stderr.startswith("controller: the configuration file '/nowhere/net.conf' cannot be read"), done


def test_controllers_read_their_configuration() -> None:
    code = "import sys, pubsub_lib; s = pubsub_lib.Settings.from_file(sys.argv[1]); print(s.addresses, s.topics)"
    done = run("-c", code, str(CONTAINER / "pubsub_lib.conf"), **{STORE: "postgresql://pubsub:secret@database/net"})
    assert done.stdout == "('tcp://publisher:8866',) ('tenant-1',)\n", done.stderr


class _Ready(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/ready" else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The URL of an endpoint that answers with ``_Ready.status``."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Ready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/ready"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_health_check_is_the_answer_of_ready(
    status: int, healthy: bool, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Ready, "status", status)
    program, *arguments = STAGES["service"].command("HEALTHCHECK")
    assert program == "python"
    assert (run(*arguments, PUBSUB_READY_URL=endpoint).returncode == 0) is healthy


def test_ports_agree_in_image_compose_file_and_prometheus() -> None:
    options = options_of(CONTAINER / "pubsub_lib.conf")
    pubsub, service = options["pubsub"], options["publisher_service"]
    published, metrics = pubsub["publisher_port"], service["metrics_port"]
    of_replica = pubsub["replica_metrics_port"]
    assert STAGES["service"].last("EXPOSE").split() == [published, metrics]
    assert STAGES["controller"].last("EXPOSE") == of_replica
    for name, port in (("service", metrics), ("controller", of_replica)):
        assert STAGES[name].variables()["PUBSUB_READY_URL"] == f"http://127.0.0.1:{port}/ready"
    jobs = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())["scrape_configs"]
    targets = {each["job_name"]: each["static_configs"][0]["targets"] for each in jobs}
    assert targets == {
        "publisher-service": [f"publisher:{metrics}"],
        "controllers": [f"{each}:{of_replica}" for each in CONTROLLERS],
    }
    # The endpoints accept requests only by their names.
    assert service["metrics_hosts"] == "publisher"
    assert pubsub["replica_metrics_hosts"] == ", ".join(CONTROLLERS)
    assert service["address"] == f"tcp://{pubsub['publishers_ips']}:{published}"
    assert {"publisher", *CONTROLLERS} < set(COMPOSE)
    (rule,) = yaml.safe_load((CONTAINER / "process-rules.yml").read_text())["groups"][0]["rules"]
    assert rule["expr"] == f'up{{job=~"{"|".join(targets)}"}} == 0'


def test_mounted_files_exist_and_stand_where_they_are_read() -> None:
    mounted: dict[str, dict[str, Path]] = {}
    for name, service in COMPOSE.items():
        for source, target in (each.split(":")[:2] for each in service.get("volumes", ()) if each.startswith(".")):
            mounted.setdefault(name, {})[target] = (CONTAINER / source).resolve()
    assert all(path.is_file() for paths in mounted.values() for path in paths.values())
    for name in ("publisher", *CONTROLLERS):
        assert mounted[name] == {DEFAULT_FILE: CONTAINER / "pubsub_lib.conf"}
    prometheus = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())
    for file in prometheus["rule_files"]:
        assert yaml.safe_load(mounted["prometheus"][f"/etc/prometheus/{file}"].read_text())["groups"]
    provider = yaml.safe_load((CONTAINER / "grafana" / "dashboards.yml").read_text())["providers"][0]
    dashboards = [path for target, path in mounted["grafana"].items() if target.startswith(provider["options"]["path"])]
    assert dashboards == [ROOT / "etc" / "grafana-dashboard.json"]
    source = yaml.safe_load((CONTAINER / "grafana" / "datasource.yml").read_text())["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_containers_have_limits_and_no_needless_rights() -> None:
    for name, service in COMPOSE.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "mem_limit" in service, name
        assert ("cap_add" in service) == (name == "database"), name


def test_compose_file_publishes_only_on_loopback_and_names_existing_targets() -> None:
    for service in COMPOSE.values():
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ()))
        assert set(service.get("depends_on", ())) <= set(COMPOSE)
        if "build" in service:
            assert (CONTAINER / service["build"]["context"]).resolve() == ROOT
            assert ROOT / service["build"]["dockerfile"] == DOCKERFILE
            assert service["build"]["target"] in STAGES
            assert service["environment"][STORE].startswith("postgresql://pubsub:${PUBSUB_PASSWORD:?")
            assert service["read_only"] is True
    for folder in (f":uid={USER},gid={USER},mode=0700", "/tmp"):
        assert any(folder in each for each in COMPOSE["publisher"]["tmpfs"])


def test_ports_and_paths_agree_in_the_manifests(tmp_path: Path) -> None:
    options = options_of(kubernetes_ini(tmp_path))
    port, metrics = int(options["pubsub"]["publisher_port"]), int(options["publisher_service"]["metrics_port"])
    (container,) = POD["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"publisher": port, "metrics": metrics}
    service = MANIFESTS["Service"]
    assert {each["name"]: (each["port"], each["targetPort"]) for each in service["spec"]["ports"]} == {
        name: (number, name) for name, number in ports.items()
    }
    assert options["publisher_service"]["address"] == f"tcp://{service['metadata']['name']}:{port}"
    assert options["pubsub"]["publishers_ips"] == service["metadata"]["name"]
    allowed = [each["port"] for rule in MANIFESTS["NetworkPolicy"]["spec"]["ingress"] for each in rule["ports"]]
    assert allowed == [port, metrics]
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}
    # No request: a restart helps neither while the database is unreachable, nor when strangers use all connections.
    assert {str(container[f"{name}Probe"]["tcpSocket"]) for name in ("liveness", "startup")} == {"{'port': 'metrics'}"}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert str(Path(DEFAULT_FILE).parent) in mounts
    socket = Path(options["pubsub"]["publisher_multiproc_socket"])
    assert str(socket.parent.parent) in mounts  # the service makes the folder, with mode 0700
    assert set(mounts.values()) == {each["name"] for each in POD["volumes"]}
    (config,) = [each["configMap"]["name"] for each in POD["volumes"] if "configMap" in each]
    assert config == MANIFESTS["ConfigMap"]["metadata"]["name"]


def test_pod_runs_without_rights_and_gets_the_database_from_the_secret() -> None:
    (container,) = POD["containers"]
    (variable,) = container["env"]
    assert variable["name"] == STORE
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "pubsub-store", "key": "store_url"}}
    of_pod, of_container = POD["securityContext"], container["securityContext"]
    assert of_pod["runAsNonRoot"] is True
    assert of_pod["runAsUser"] == of_pod["runAsGroup"] == USER
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert of_container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["automountServiceAccountToken"] is False
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    for kind, selector in (
        ("Deployment", MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"]),
        ("Service", MANIFESTS["Service"]["spec"]["selector"]),
        ("NetworkPolicy", MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]),
    ):
        assert selector.items() <= labels, kind
    # Two services with one name would stop each other.
    assert MANIFESTS["Deployment"]["spec"]["replicas"] == 1
    assert MANIFESTS["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
