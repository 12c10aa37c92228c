"""Alert rules and dashboard: every metric and label that they name exists in a real service or a real replica."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import generate_dashboard
import pytest
import yaml
from _bench.e2e import packages
from _bench.e2e.side import LeftOutError
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib.replica.metrics import ReplicaMetrics
from tests.conftest import IN_CI
from tests.e2e.service_host import LONG, ROOT, Host, Watched, write

RULES = ROOT / "etc" / "prometheus-rules.yml"
CASES = Path(__file__).with_name("prometheus-rules.test.yml")
SELECTOR = re.compile(r"\b(pubsub_(?:replica|build|service)_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')

Known = Mapping[str, Mapping[str, set[str]]]
"""Metrics with the values of their labels."""


def expressions() -> list[str]:
    """Of the rules, then of the dashboard."""
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(generate_dashboard.FILE.read_text())["panels"]
    return rules + [target["expr"] for panel in panels for target in panel.get("targets", ())]


def found_in(families: Iterable[Metric]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each metric with the labels of its samples."""
    for family in families:
        yield family.name + ("_total" if family.type == "counter" else ""), {}
        for sample in family.samples:
            yield sample.name, sample.labels


def shown_by(host: Host) -> list[Metric]:
    """The metrics of a service."""
    with urllib.request.urlopen(f"http://127.0.0.1:{host.metrics_port}/metrics", timeout=LONG) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """What a service with all of its parts, a relay and a replica show after a transaction of a worker."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "journals").mkdir()
    host = Host(folder, f"sqlite:///{folder}/net.db", group_commit="host", journal_folder=f"{folder}/journals")
    relay = Host(folder / "relay", host.database, "relay-1", role="relay", topics="t0, t1", discovery_interval=0.5)
    try:
        host.service()
        relay.service()
        worker = host.worker()
        with Watched(host.settings) as watched:
            watched.replica.wait_for(write(worker, 1), LONG)
            of_services = [family for each in (host, relay) for family in shown_by(each)]
            of_replica = list(ReplicaMetrics(watched.replica.status).collect())
    finally:
        relay.close()
        host.close()
    metrics: dict[str, dict[str, set[str]]] = {}
    for name, labels in found_in([*of_services, *of_replica]):
        values = metrics.setdefault(name, defaultdict(set))
        for label, value in labels.items():
            values[label].add(value)
    return metrics


def wrong(expression: str, known: Known) -> list[str]:
    """What an expression names and no process has."""
    missing: list[str] = []
    for name, selectors in SELECTOR.findall(expression):
        if name not in known:
            missing.append(name)
            continue
        for label, _, given in LABEL.findall(selectors):
            if not given.startswith("$"):  # a variable of the dashboard
                missing += [f"{name}: {label}={each}" for each in given.split("|") if each not in known[name][label]]
    return missing


def test_rules_and_dashboard_name_metrics_that_exist(known: Known) -> None:
    assert {each: found for each in expressions() if (found := wrong(each, known))} == {}


def test_all_metrics_have_one_prefix(known: Known) -> None:
    prefixes = {name.split("_")[0] + "_" + name.split("_")[1] for name in known}
    assert prefixes == {"pubsub_service", "pubsub_replica", "pubsub_build"}


def test_names_that_do_not_exist_are_found(known: Known) -> None:
    assert wrong("increase(pubsub_service_ready_total[5m]) > 0", known) == ["pubsub_service_ready_total"]
    assert wrong('pubsub_service_links_total{what=~"unsent|lost"}', known) == ["pubsub_service_links_total: what=lost"]


def test_every_rule_names_the_instance_and_a_severity() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 20
    assert {rule["labels"]["severity"] for rule in rules} == {"page", "ticket"}
    for rule in rules:
        text = rule["annotations"]["summary"]
        assert "$labels.instance" in text or rule["expr"].startswith("sum("), rule["alert"]


def test_dashboard_is_up_to_date_and_its_panels_do_not_overlap() -> None:
    assert generate_dashboard.main(["--check"]) == 0
    places: set[tuple[int, int]] = set()
    for panel in generate_dashboard.dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places, panel["title"]
        assert max(x for x, _ in cells) < 24
        places |= cells


def test_every_rule_has_a_test_in_which_it_raises_its_alert() -> None:
    rules = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    cases = [each for test in yaml.safe_load(CASES.read_text())["tests"] for each in test["alert_rule_test"]]
    assert {each["alertname"] for each in cases if each.get("exp_alerts")} == set(rules)


def promtool() -> str:
    """The installed program, or that of the Debian package, which is unpacked in the user's cache."""
    installed = shutil.which("promtool")
    if installed is not None:
        return installed
    try:
        return str(packages.server("prometheus", ["promtool"]).programs["promtool"])
    except LeftOutError as error:
        if IN_CI or "cannot be downloaded" not in str(error):
            raise
        pytest.skip(str(error))


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for command, file in (("check", RULES), ("test", CASES)):
        done = subprocess.run([promtool(), command, "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
