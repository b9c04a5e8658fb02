"""The Grafana dashboards read what the service exposes and are what their source makes."""

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
BOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*"))
}
PANELS = [panel for b in BOARDS.values() for panel in b["panels"] if panel["type"] != "row"]
every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))

# Prometheus makes these itself, for every target.
OF_PROMETHEUS = {"up": {"instance"}}
OF_THE_GPU_EXPORTER = {
    line.split(",")[0]
    for line in (GRAFANA.parent / "gpu-exporter" / "maskwright.csv").read_text().splitlines()
    if not line.startswith("#")
}
A_SERIES = re.compile(r"([A-Za-z_]+)\{(.*?)\}")
A_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')


def queries() -> Iterator[str]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.fixture
def exposed() -> dict[str, set[str]]:
    """The labels of each sample of the service, as Prometheus stores it."""
    ours = {name: labels | {"instance", "job"} for name, labels in exposed_labels().items()}
    return ours | OF_PROMETHEUS | {key: {"gpu"} for key in OF_THE_GPU_EXPORTER}


def test_the_dashboards_are_what_their_source_makes() -> None:
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


def test_every_query_follows_the_choice_of_instances_models_or_gpus() -> None:
    for query in queries():
        if "job:" in query:  # a recorded rule, over all
            continue
        chosen = query.count('{instance=~"$instance"') + query.count('{gpu=~"$gpu"')
        assert query.count("{") == chosen > 0, query


def test_what_is_counted_by_model_follows_the_choice_of_models(
    exposed: dict[str, set[str]],
) -> None:
    for query in queries():
        for name, matchers in A_SERIES.findall(query):
            assert ("$model" in matchers) == ("model" in exposed[name]), query


def test_every_metric_of_the_service_is_on_a_dashboard(exposed: dict[str, set[str]]) -> None:
    text = " ".join(queries())
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in exposed if "maskwright" in name}
    assert {name for name in ours if name not in text} == set()


@every_panel
def test_a_panel_says_what_it_shows_in_which_unit_with_thresholds(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"]
    for target in panel["targets"]:
        assert target["legendFormat"] or panel["type"] == "table"


@every_panel
def test_a_legend_names_a_label_that_the_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            kept = re.findall(rf"by \([^)]*\b{label}\b[^)]*\)", target["expr"])
            assert kept or (label in ("instance", "gpu") and "sum" not in target["expr"])


@pytest.mark.parametrize("name", BOARDS)
def test_panels_fill_the_grid_without_overlap(name: str) -> None:
    cells = [
        (x, y)
        for panel in BOARDS[name]["panels"]
        for box in [panel["gridPos"]]
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells)) == 24 * (1 + max(y for _, y in cells))


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_leads_to_the_others_and_lets_choose(name: str) -> None:
    board = BOARDS[name]
    assert board["tags"] == board["links"][0]["tags"] == ["maskwright"]
    assert board["uid"] == f"maskwright-{name}"
    chosen = {variable["name"] for variable in board["templating"]["list"]}
    assert chosen == {"datasource"} | ({"gpu"} if name == "gpu" else {"instance", "model"})


def test_grafana_finds_the_dashboards_and_the_data_source() -> None:
    compose = yaml.safe_load((GRAFANA.parents[1] / "docker-compose.yml").read_text())
    mounts = [mount.split(":")[1] for mount in compose["services"]["grafana"]["volumes"]]
    provisioning = GRAFANA / "provisioning"
    provider = yaml.safe_load((provisioning / "dashboards" / "maskwright.yml").read_text())
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())
    assert provider["providers"][0]["options"]["path"] in mounts
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
    home = compose["services"]["grafana"]["environment"][
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    ]
    assert Path(home).stem in BOARDS
