"""The Grafana dashboard reads what the service exposes and is what its source makes."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import exposed_labels

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "maskwright.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

# Prometheus makes these itself, for every target.
OF_PROMETHEUS = {"up": {"instance"}}
A_SERIES = re.compile(r"([a-z_]+)\{(.*?)\}")
A_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')


def queries() -> Iterator[str]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.fixture
def exposed() -> dict[str, set[str]]:
    """The labels of each sample of the service, as Prometheus stores it."""
    ours = {name: labels | {"instance"} for name, labels in exposed_labels().items()}
    return ours | OF_PROMETHEUS


def test_the_dashboard_is_what_its_source_makes() -> None:
    check = [sys.executable, GRAFANA / "build.py", "--check"]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_query_reads_a_metric_that_the_service_exposes(exposed: dict[str, set[str]]) -> None:
    read = {name for query in queries() for name, _ in A_SERIES.findall(query)}
    assert read <= set(exposed)


def test_every_query_selects_by_labels_that_its_metric_has(exposed: dict[str, set[str]]) -> None:
    for query in queries():
        for name, matchers in A_SERIES.findall(query):
            assert set(A_MATCHER.findall(matchers)) <= exposed[name], query


def test_every_query_follows_the_choice_of_instances() -> None:
    for query in queries():
        assert query.count("{") == query.count('{instance=~"$instance"') > 0, query


def test_every_metric_of_the_service_is_on_the_dashboard(exposed: dict[str, set[str]]) -> None:
    text = " ".join(queries())
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in exposed if "maskwright" in name}
    assert {name for name in ours if name not in text} == set()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_says_what_it_shows_in_which_unit_with_thresholds(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"]
    for target in panel["targets"]:
        assert target["legendFormat"] or panel["type"] == "table"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_legend_names_a_label_that_the_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            kept = re.findall(rf"by \([^)]*\b{label}\b[^)]*\)", target["expr"])
            assert kept or (label == "instance" and "sum" not in target["expr"])


def test_panels_fill_the_grid_without_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for box in [panel["gridPos"]]
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells)) == 24 * max(y + 1 for _, y in cells)


def test_grafana_finds_the_dashboard_and_the_data_source() -> None:
    compose = yaml.safe_load((GRAFANA.parents[1] / "docker-compose.yml").read_text())
    mounts = [mount.split(":")[1] for mount in compose["services"]["grafana"]["volumes"]]
    provisioning = GRAFANA / "provisioning"
    provider = yaml.safe_load((provisioning / "dashboards" / "maskwright.yml").read_text())
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())
    assert provider["providers"][0]["options"]["path"] in mounts
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
