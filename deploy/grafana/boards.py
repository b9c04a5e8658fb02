"""What the dashboards show of requests and batches. The metrics: service/metrics.py."""

from panels import buckets, lines, number, yes_or_no
from promql import mean, quantile, rate, seen_rate, series, share

# From where a figure is orange and red. Starting points: set them to what you promise.
LATENCY_SECONDS = (0.25, 1.0)
ERROR_SHARE = (0.001, 0.01)
SLOW_SHARE = (0.01,)
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


def budgets() -> list:
    """How fast the error budgets are spent; the alerts watch the same figures."""
    windows = ("5m", "1h", "6h", "3d")
    about = (
        "Over each window. The promise is the dashed line; 14.4 times it over an hour, or 6 times"
        " it over six, calls someone. All instances; no line without traffic."
    )
    return [
        lines(
            "Requests that end with 5xx",
            about,
            {window: f"max(job:maskwright_errors:ratio_rate{window})" for window in windows},
            unit="percentunit",
            width=12,
            limits=ERROR_SHARE[:1],
        ),
        lines(
            "Answers that take longer than 1 s",
            about,
            {window: f"max(job:maskwright_slow:ratio_rate{window})" for window in windows},
            unit="percentunit",
            width=12,
            limits=SLOW_SHARE,
        ),
    ]


def latency(percent: int) -> object:
    """Latency by route at one percentile."""
    return lines(
        f"Latency p{percent}",
        f"{percent} % of a route's requests take no longer, from the request's head to the answer's"
        " end. Read from buckets whose edges are 2.5 times apart: so near is the figure.",
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
            "Mean total by route",
            "From the request's head to the answer's end; and of all that were answered, without"
            " those refused, from the body to the answer.",
            {
                "{{route}}": mean(REQUEST_SECONDS, by="route"),
                "all, answered": mean("maskwright_total_seconds"),
            },
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
