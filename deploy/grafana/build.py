"""The Grafana dashboard as code: running this file rewrites dashboards/maskwright.json.

With --check nothing is written, and the exit status is 1 if the JSON is not what this code makes.
The metrics are those of service/metrics.py.
"""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from panels import DATA_SOURCE, buckets, facts, lines, number, yes_or_no
from promql import mean, quantile, rate, seen_rate, series, share

TARGET = Path(__file__).parent / "dashboards" / "maskwright.json"

# From where a figure is orange and red. Starting points: set them to what you promise.
LATENCY_SECONDS = (0.25, 1.0)
ERROR_SHARE = (0.001, 0.01)
QUEUE_SHARE = (0.5, 0.8)
PADDING_SHARE = (0.3, 0.5)

# Load balancers and Prometheus ask these; their answers are not the clients'.
CLIENTS = 'route!~"/livez|/readyz|/metrics"'

REQUESTS = "maskwright_http_requests_total"
REQUEST_SECONDS = "maskwright_http_request_duration_seconds"
TOKENS = "maskwright_tokens_total"
PADDING = share(rate(TOKENS, where='kind="padding"'), rate(TOKENS))


def summary() -> list:
    """What to read first: does it answer, how much, how well, how full."""
    # `up`, which Prometheus itself makes, stands in for an instance that it cannot read.
    ready = f"min({series('maskwright_ready')} or on (instance) {series('up')} * 0)"
    answered = rate(REQUESTS, where=CLIENTS)
    failed = rate(REQUESTS, where=f'{CLIENTS}, status_class="5xx"')
    waiting = f"{series('maskwright_queue_cost')} / {series('maskwright_queue_capacity_cost')}"
    return [
        yes_or_no("Ready", "YES if every selected instance takes work.", ready),
        number("Requests", "Answers a second, without probes and scrapes.", answered, unit="reqps"),
        number(
            "Errors",
            "Share of answers with a 5xx status. A full queue answers 429: see Refusals.",
            share(failed, answered),
            unit="percentunit",
            limits=ERROR_SHARE,
        ),
        number(
            "Latency p95",
            "95 % of inference requests are answered within this time.",
            quantile(0.95, REQUEST_SECONDS),
            unit="s",
            limits=LATENCY_SECONDS,
        ),
        number(
            "Queue",
            "Cost that waits, as a share of the cost at which work is refused; the fullest"
            " instance.",
            f"max({waiting})",
            unit="percentunit",
            limits=QUEUE_SHARE,
        ),
        number(
            "Padding",
            "Share of the computed tokens that are padding.",
            PADDING,
            unit="percentunit",
            limits=PADDING_SHARE,
        ),
    ]


def traffic() -> list:
    """Requests and their latency."""
    return [
        lines(
            "Requests by route and status",
            "Answers a second. Only what occurred in the time shown; no probes and scrapes.",
            {
                "{{route}} {{status_class}}": seen_rate(
                    REQUESTS, by="route, status_class", where=CLIENTS
                )
            },
            unit="reqps",
            width=12,
        ),
        lines(
            "Texts by task",
            "Texts answered a second; a request may bring many.",
            {"{{task}}": rate("maskwright_texts_total", by="task")},
            unit="cps",
            width=6,
        ),
        lines(
            "Requests in flight",
            "Requests being answered at this moment, and connections that are open.",
            {
                "{{instance}}": series("maskwright_http_requests_in_flight"),
                "{{instance}}, connections": series("maskwright_http_connections"),
            },
            unit="short",
            width=6,
        ),
        *(latency(percent) for percent in (50, 95, 99)),
    ]


def latency(percent: int) -> object:
    """Latency by route at one percentile."""
    return lines(
        f"Latency p{percent}",
        f"{percent} % of a route's requests take no longer, from the request's head to the answer's"
        " end. Read from buckets in twofold steps, so right to within a factor of 2.",
        {"{{route}}": quantile(percent / 100, REQUEST_SECONDS, by="route")},
        unit="s",
        limits=LATENCY_SECONDS,
    )


def batching() -> list:
    """How long work waits, and how full the batches are."""
    return [
        lines(
            "Queue cost",
            "Padded tokens that wait. At the capacity new work is refused with 429.",
            {
                "{{instance}}": series("maskwright_queue_cost"),
                "{{instance}} capacity": series("maskwright_queue_capacity_cost"),
            },
            unit="short",
        ),
        lines(
            "Queue depth",
            "Texts that wait for a batch.",
            {"{{instance}}": series("maskwright_queue_depth")},
            unit="short",
        ),
        lines(
            "Queue wait p95",
            "95 % of the texts wait no longer for their batch.",
            {"{{graph}}": quantile(0.95, "maskwright_queue_seconds", by="graph")},
            unit="s",
            limits=LATENCY_SECONDS,
        ),
        buckets(
            "Texts in a batch",
            "Batches a second, by how many texts they hold. A batch is what gathered while the"
            " device was busy, so single texts are as it should be at low load only.",
            rate("maskwright_batch_items_bucket", by="le"),
            unit="cps",
        ),
        lines(
            "Batch cost",
            "Padded tokens in a batch: half of the batches, and 95 %, have no more.",
            {
                "p50": quantile(0.5, "maskwright_batch_cost"),
                "p95": quantile(0.95, "maskwright_batch_cost"),
            },
            unit="short",
        ),
        lines(
            "Batches",
            "Batches run a second.",
            {"{{graph}}": rate("maskwright_run_seconds_count", by="graph")},
            unit="cps",
        ),
        lines(
            "Tokens",
            "Tokens computed a second: those of texts (real), and the padding beside them.",
            {"{{kind}}": rate(TOKENS, by="kind")},
            unit="cps",
            width=12,
            stacked=True,
        ),
        lines(
            "Padding ratio",
            "Share of the computed tokens that are padding.",
            {"padding": PADDING},
            unit="percentunit",
            width=12,
            limits=PADDING_SHARE,
        ),
    ]


def times() -> list:
    """Where the time goes."""
    return [
        lines(
            "Mean time by stage",
            "What a text goes through. The sum is near the total of a request with one text.",
            {
                "tokenize, a request": mean("maskwright_tokenize_seconds"),
                "queue, a text": mean("maskwright_queue_seconds"),
                "run, a batch": mean("maskwright_run_seconds"),
            },
            unit="s",
            stacked=True,
        ),
        lines(
            "Mean total by task",
            "From a request's body to its answer.",
            {"{{task}}": mean("maskwright_total_seconds", by="task")},
            unit="s",
            limits=LATENCY_SECONDS,
        ),
        lines(
            "Batches at once",
            "Seconds of run per second. Near the number of workers (1 on CUDA, one per core on a"
            " CPU) the device is saturated.",
            {"{{graph}}": rate("maskwright_run_seconds_sum", by="graph")},
            unit="short",
            stacked=True,
        ),
    ]


def refusals() -> list:
    """What was turned away, what broke, what was lost on the way."""
    return [
        lines(
            "Refusals",
            "Requests turned away a second. `overloaded`: the queue is full.",
            {"{{reason}}": rate("maskwright_refused_total", by="reason")},
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Failures",
            "Texts a second that failed after they were admitted, and batches that failed and ran"
            " again text by text, and workers that died or hang. Above 0, read the log.",
            {
                "{{reason}}": rate("maskwright_failures_total", by="reason"),
                "batch retries": rate("maskwright_batch_retries_total"),
                "workers lost": rate("maskwright_workers_lost_total"),
            },
            unit="cps",
        ),
        lines(
            "Cancelled and cut",
            "Texts a second whose client left before they were computed, and texts cut to fit.",
            {
                "cancelled, {{stage}}": rate("maskwright_cancelled_total", by="stage"),
                "cut, {{task}}": rate("maskwright_truncated_total", by="task"),
            },
            unit="cps",
        ),
    ]


def process() -> list:
    """The process: memory or files that rise slowly are a leak."""
    return [
        lines(
            "State",
            "Ready: takes work. Draining: finishes open requests after SIGTERM.",
            {
                "{{instance}} ready": series("maskwright_ready"),
                "{{instance}} draining": series("maskwright_draining"),
                "reloads, {{outcome}}": rate("maskwright_reloads_total", by="outcome"),
            },
            unit="none",
            width=6,
        ),
        lines(
            "Memory",
            "Resident memory of the process; the GPU's is not in it.",
            {"{{instance}}": series("process_resident_memory_bytes")},
            unit="bytes",
            width=6,
        ),
        lines(
            "CPU",
            "Cores in use.",
            {"{{instance}}": rate("process_cpu_seconds_total", by="instance")},
            unit="short",
            width=6,
        ),
        lines(
            "Event loop lag p99",
            "How late the event loop runs what is due. Above some tens of milliseconds, everything"
            " waits for something that should not be on it.",
            {"p99": quantile(0.99, "maskwright_event_loop_lag_seconds")},
            unit="s",
            width=6,
        ),
        lines(
            "Open files",
            "File descriptors in use, connections among them.",
            {"{{instance}}": series("process_open_fds")},
            unit="short",
            width=24,
        ),
    ]


def loaded() -> list:
    """Which model answers, and where it runs."""
    asked, active = "maskwright_provider_requested", "maskwright_provider_active"
    elsewhere = f"{series(asked)} == 1 unless on (instance, provider) {series(active)} == 1"
    names = "instance, model, mixer, precision, sha256, runtime_version"
    return [
        number(
            "Wrong provider",
            "Instances that do not run on the execution provider that was asked for.",
            f"count({elsewhere}) or vector(0)",
            unit="none",
            limits=(1,),
        ),
        facts(
            "Model and provider",
            "What each instance answers with, and the execution provider requested and active.",
            [
                f"max by ({names}) ({series('maskwright_model_info')})",
                provider(asked, column="requested"),
                provider(active, column="active"),
            ],
        ),
    ]


def provider(metric: str, *, column: str) -> str:
    """The provider whose value is 1, under a label of its own."""
    renamed = f'label_replace({series(metric)} == 1, "{column}", "$1", "provider", "(.+)")'
    return f"max by (instance, {column}) ({renamed})"


ROWS = {
    "Traffic": traffic,
    "Queue and batching": batching,
    "Time breakdown": times,
    "Refusals and failures": refusals,
    "Process": process,
    "Model and provider": loaded,
}


def build() -> str:
    """The dashboard as JSON."""
    instances = (
        dashboard.QueryVariable("instance")
        .label("Instance")
        .datasource(DATA_SOURCE)
        .query("label_values(maskwright_ready, instance)")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .current(model.VariableOption(text="All", value="$__all"))
    )
    board = (
        dashboard.Dashboard("Maskwright")
        .uid("maskwright")
        .description("Made by deploy/grafana/build.py: change it there.")
        .readonly()
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .with_variable(instances)
    )
    for panel in summary():
        board.with_panel(panel)
    for title, panels in ROWS.items():
        board.with_row(dashboard.Row(title))
        for panel in panels():
            board.with_panel(panel)
    result = board.build()
    for number_of_panel, panel in enumerate(result.panels, start=1):
        panel.id_val = number_of_panel  # lets a link point at one panel
    return json.dumps(result, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> None:
    """Write the dashboard, or with --check say whether it is current."""
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(build())
    elif not TARGET.exists() or TARGET.read_text() != build():
        sys.exit(f"{TARGET.name} is stale: run python deploy/grafana/build.py")


if __name__ == "__main__":
    main()
