"""The few shapes of PromQL that dashboards are made of, over the instances and models chosen."""

import re

OF_A_MODEL = re.compile(
    r"maskwright_(texts_total|truncated_total|tokens_total|failures_total|model_info"
    r"|(queue|run)_seconds(_\w+)?)"
)


def series(metric: str, *, where: str = "") -> str:
    """The metric as it is."""
    chosen = ['instance=~"$instance"']
    if OF_A_MODEL.fullmatch(metric):
        chosen.append('model=~"$model"')
    return f"{metric}{{{', '.join(chosen + [where] * bool(where))}}}"


def gpu(metric: str) -> str:
    """A figure of the chosen GPUs."""
    return f'{metric}{{gpu=~"$gpu"}}'


def model_facts(labels: str) -> str:
    """1 for each loaded model, with these labels."""
    return f"max by ({labels}) ({series('maskwright_model_info')})"


def rate(metric: str, *, by: str = "", where: str = "") -> str:
    """A counter's rise per second, summed over all labels but `by`."""
    return f"sum{_by(by)}(rate({series(metric, where=where)}[$__rate_interval]))"


def seen_rate(metric: str, *, by: str, where: str = "") -> str:
    """`rate`, of label values that rose in the time shown only: most stay at zero forever."""
    rise = f"sum{_by(by)}(increase({series(metric, where=where)}[$__range]))"
    return f"{rate(metric, by=by, where=where)} and {rise} > 0"


def quantile(q: float, histogram: str, *, by: str = "") -> str:
    """A quantile of what a histogram observed; no sample, rather than NaN, if it was nothing."""
    buckets = rate(f"{histogram}_bucket", by=f"le, {by}" if by else "le")
    return f"histogram_quantile({q}, {buckets}) >= 0"


def mean(histogram: str, *, by: str = "") -> str:
    """The mean of what a histogram observed; no sample if it was nothing."""
    return f"{rate(f'{histogram}_sum', by=by)} / ({rate(f'{histogram}_count', by=by)} > 0)"


def share(part: str, whole: str) -> str:
    """Part of a whole, without labels, and 0 while the whole is 0."""
    return f"{part} / ({whole} > 0) or vector(0)"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
