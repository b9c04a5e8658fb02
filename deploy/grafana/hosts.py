"""What the dashboards show of processes, GPUs and models."""

from panels import facts, lines, number
from promql import gpu, model_facts, quantile, rate, series

GPU_MEMORY_SHARE = (0.9, 0.95)


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


def devices() -> list:
    """The GPUs, as their own exporter sees them."""
    used, free = gpu("DCGM_FI_DEV_FB_USED"), gpu("DCGM_FI_DEV_FB_FREE")
    panels = {
        "Utilisation": ("Share of time in which a kernel ran.", "DCGM_FI_DEV_GPU_UTIL", "percent"),
        "Power": ("Power draw.", "DCGM_FI_DEV_POWER_USAGE", "watt"),
        "Temperature": ("Of the chip.", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
        "Clock (MHz)": ("Lower under load: throttled.", "DCGM_FI_DEV_SM_CLOCK", "short"),
        "Faults": ("Code of the last XID error; 0 is well.", "DCGM_FI_DEV_XID_ERRORS", "none"),
    }  # fmt: skip
    memory = lines(
        "Memory",
        "In use, as a share of all. Constant once warm: the runtime keeps what it took.",
        {"GPU {{gpu}}": f"{used} / ({used} + {free})"},
        unit="percentunit",
        limits=GPU_MEMORY_SHARE,
    )
    others = [
        lines(title, about, {"GPU {{gpu}}": gpu(metric)}, unit=unit)
        for title, (about, metric, unit) in panels.items()
    ]
    return [others[0], memory, *others[1:]]


def compared() -> list:
    """Each model, and each mixer, beside the others."""
    tokens = rate("maskwright_tokens_total", by="instance, model", where='kind="real"')
    return [
        facts(
            "Models",
            "What each instance answers with.",
            [model_facts("instance, model, mixer, precision, sha256, runtime_version")],
            width=24,
        ),
        lines(
            "Texts by model",
            "Texts answered a second.",
            {"{{model}}": rate("maskwright_texts_total", by="model")},
            unit="cps",
        ),
        lines(
            "Tokens by model",
            "Tokens of texts computed a second, without padding.",
            {"{{model}}": rate("maskwright_tokens_total", by="model", where='kind="real"')},
            unit="cps",
        ),
        lines(
            "Tokens by mixer",
            "The same, for all models of a mixer.",
            {
                "{{mixer}}": f"sum by (mixer) ({tokens} * on (instance, model) group_left (mixer)"
                f" {model_facts('instance, model, mixer')})"
            },
            unit="cps",
        ),
        lines(
            "Run time p95 by model",
            "95 % of a model's batches run no longer.",
            {"{{model}}": quantile(0.95, "maskwright_run_seconds", by="model")},
            unit="s",
        ),
        lines(
            "Run time per token by model",
            "Seconds of run for each token of a text: what a model costs, whatever its batches.",
            {
                "{{model}}": f"{rate('maskwright_run_seconds_sum', by='model')} / ("
                + rate("maskwright_tokens_total", by="model", where='kind="real"')
                + " > 0)"
            },
            unit="s",
        ),
        lines(
            "Queue wait p95 by model",
            "95 % of a model's texts wait no longer for their batch.",
            {"{{model}}": quantile(0.95, "maskwright_queue_seconds", by="model")},
            unit="s",
        ),
        lines(
            "Padding by model",
            "Share of the computed tokens that are padding.",
            {
                "{{model}}": rate("maskwright_tokens_total", by="model", where='kind="padding"')
                + " / ("
                + rate("maskwright_tokens_total", by="model")
                + " > 0)"
            },
            unit="percentunit",
            width=12,
        ),
        lines(
            "Failures by model",
            "Texts a second that failed after they were admitted.",
            {"{{model}}": rate("maskwright_failures_total", by="model")},
            unit="cps",
            width=12,
        ),
    ]
