"""The Grafana dashboards as code: running this file rewrites dashboards/*.json.

With --check nothing is written, and the exit status is 1 if the JSON is not what this code makes.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import boards
import hosts
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from panels import DATA_SOURCE

DIRECTORY = Path(__file__).parent / "dashboards"
TAG = "maskwright"

# By file: the title, and the panels under each heading; "" for those above the first.
DASHBOARDS: dict[str, tuple[str, dict[str, Callable[[], list]]]] = {
    "traffic": (
        "Traffic & SLO",
        {"": boards.summary, "Traffic": boards.traffic, "Promises": boards.budgets},
    ),
    "queue": ("Queue & batching", {"": boards.batching}),
    "times": ("Time breakdown", {"": boards.times}),
    "refusals": ("Refusals", {"": boards.refusals}),
    "gpu": ("GPU", {"": hosts.devices}),
    "process": ("Process", {"": hosts.process, "Model and provider": hosts.loaded}),
    "models": ("Models & mixers compared", {"": hosts.compared}),
}


def variable(name: str, label: str, metric: str) -> dashboard.QueryVariable:
    """A choice among the values of a label; all of them at first."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATA_SOURCE)
        .query(f"label_values({metric}, {name})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(text="All", value="$__all"))
    )


def build(name: str) -> str:
    """A dashboard as JSON."""
    title, sections = DASHBOARDS[name]
    links = dashboard.DashboardLink("Maskwright").type(model.DashboardLinkType.DASHBOARDS)
    board = (
        dashboard.Dashboard(title)
        .uid(f"maskwright-{name}")
        .tags([TAG])
        .description("Made by deploy/grafana/build.py: change it there.")
        .readonly()
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(links.tags([TAG]).keep_time(True).include_vars(True))
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    if name == "gpu":
        board.with_variable(variable("gpu", "GPU", "DCGM_FI_DEV_GPU_UTIL"))
    else:
        board.with_variable(variable("instance", "Instance", "maskwright_ready"))
        board.with_variable(variable("model", "Model", "maskwright_model_info"))
    for heading, panels in sections.items():
        if heading:
            board.with_row(dashboard.Row(heading))
        for panel in panels():
            board.with_panel(panel)
    result = board.build()
    for number_of_panel, panel in enumerate(result.panels, start=1):
        panel.id_val = number_of_panel  # lets a link point at one panel
    return json.dumps(result, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> None:
    """Write the dashboards, or with --check say whether they are current."""
    made = {f"{name}.json": build(name) for name in DASHBOARDS}
    if "--check" not in sys.argv[1:]:
        for file, text in made.items():
            (DIRECTORY / file).write_text(text)
        return
    there = {path.name: path.read_text() for path in DIRECTORY.glob("*.json")}
    if stale := [file for file in {*made, *there} if made.get(file) != there.get(file)]:
        sys.exit(f"stale: {', '.join(sorted(stale))}; run python deploy/grafana/build.py")


if __name__ == "__main__":
    main()
