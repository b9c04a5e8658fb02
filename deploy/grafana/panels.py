"""The kinds of panel on the dashboard: a number, lines over time, a heatmap, a table."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATA_SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = TypeVar("Panel", stat.Panel, Timeseries, heatmap.Panel, table.Panel)
Limits = tuple[float, ...]  # from where a value is orange, and from where red


def number(title: str, about: str, query: str, *, unit: str, limits: Limits = ()) -> stat.Panel:
    """One figure for all selected instances, as of now: an old one would mislead."""
    panel = _framed(stat.Panel(), title, about, unit=unit, width=4, limits=limits)
    return (
        panel.height(4)
        .with_target(_target(query, legend=title).instant())
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(options.BigValueColorMode.VALUE)
        .graph_mode(options.BigValueGraphMode.NONE)
        .no_value("no traffic")
    )


def yes_or_no(title: str, about: str, query: str) -> stat.Panel:
    """YES on green while the query is 1, NO on red while it is 0."""
    words = {
        "0": model.ValueMappingResult(text="NO", color="red"),
        "1": model.ValueMappingResult(text="YES", color="green"),
    }
    panel = number(title, about, query, unit="none").mappings([model.ValueMap(options=words)])
    return panel.no_value("no instance").color_mode(options.BigValueColorMode.BACKGROUND)


def lines(
    title: str,
    about: str,
    queries: Mapping[str, str],
    *,
    unit: str,
    width: int = 8,
    limits: Limits = (),
    stacked: bool = False,
) -> Timeseries:
    """Lines over time, from 0; `queries` maps a legend to its PromQL.

    A legend that ends in "capacity" is drawn as a bound: red and dashed.
    """
    panel = _framed(Timeseries(), title, about, unit=unit, width=width, limits=limits)
    for ref_id, (legend, query) in zip("ABCD", queries.items(), strict=False):
        panel.with_target(_target(query, ref_id=ref_id, legend=legend))
    stacking = options.StackingMode.NORMAL if stacked else options.StackingMode.NONE
    style = options.GraphTresholdsStyleMode
    bound = {
        "color": {"mode": "fixed", "fixedColor": "red"},
        "custom.lineStyle": {"fill": "dash", "dash": [8, 8]},
    }
    tooltip = common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI)
    legend_box = common.VizLegendOptions().display_mode(options.LegendDisplayMode.LIST)
    # Colours by name: a route has the same one in every panel.
    colours = dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
    return (
        panel.min(0)
        .color_scheme(colours)
        .fill_opacity(30 if stacked else 0)
        .stacking(common.StackingConfig().mode(stacking))
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(style.DASHED if limits else style.OFF)
        )
        .override_by_regexp("/capacity$/", _properties(bound))
        .tooltip(tooltip.sort(options.SortOrder.DESCENDING))
        .legend(legend_box.placement(options.LegendPlacement.BOTTOM).show_legend(True))
    )


def buckets(title: str, about: str, query: str, *, unit: str) -> heatmap.Panel:
    """A histogram's buckets over time; `query` keeps the label `le`."""
    panel = _framed(heatmap.Panel(), title, about, unit=unit, width=8)
    colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
    return (
        panel.with_target(_target(query, legend="{{le}}").format(PromQueryFormat.HEATMAP))
        .calculate(False)
        .color(colours)
        .y_axis(heatmap.YAxisConfig().unit("short"))
        .cell_values(heatmap.CellValues().unit(unit))
        .show_legend()
        .show_tooltip()
    )


def facts(title: str, about: str, queries: Sequence[str], *, width: int = 20) -> table.Panel:
    """A row for each instance, with the labels of all queries as its columns."""
    panel = _framed(table.Panel(), title, about, unit="none", width=width)
    hidden = {"Time": True}
    for ref_id, query in zip("ABC", queries, strict=False):
        target = _target(query, ref_id=ref_id, legend="").format(PromQueryFormat.TABLE)
        panel.with_target(target.instant())
        hidden[f"Value #{ref_id}"] = True
    merge = model.DataTransformerConfig(id_val="merge", options={})
    hide = model.DataTransformerConfig(id_val="organize", options={"excludeByName": hidden})
    return panel.height(4).with_transformation(merge).with_transformation(hide)


def _framed(
    panel: Panel, title: str, about: str, *, unit: str, width: int, limits: Limits = ()
) -> Panel:
    """The panel with what every panel has; `width` in columns, of which there are 24."""
    colours = zip((None, *limits), ("green", "orange", "red"), strict=False)
    steps = [model.Threshold(value=value, color=colour) for value, colour in colours]
    thresholds = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    panel.title(title).description(about).unit(unit).span(width).height(8)
    return panel.datasource(DATA_SOURCE).thresholds(thresholds)


def _target(query: str, *, ref_id: str = "A", legend: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query).ref_id(ref_id).legend_format(legend)
    return target.datasource(DATA_SOURCE).range()


def _properties(values: Mapping[str, object]) -> list[model.DynamicConfigValue]:
    return [model.DynamicConfigValue(id_val=key, value=value) for key, value in values.items()]
