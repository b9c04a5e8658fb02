"""Alerts: each one is tested, explained, and reads what the service exposes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import exposed_labels

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((PROMETHEUS / "rules").glob("*.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
CASES: list[dict[str, Any]] = [
    case
    for path in sorted((PROMETHEUS / "tests").glob("*.yml"))
    for test in yaml.safe_load(path.read_text())["tests"]
    for case in test["alert_rule_test"]
]

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))


@every_alert
def test_an_alert_has_a_case_that_fires_and_one_that_stays_quiet(alert: dict[str, Any]) -> None:
    cases = [case for case in CASES if case["alertname"] == alert["alert"]]
    assert {bool(case["exp_alerts"]) for case in cases} == {True, False}


@every_alert
def test_an_alert_points_at_a_heading_of_the_runbook_that_names_it(alert: dict[str, Any]) -> None:
    path, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert (ROOT / path).is_file()
    headings = re.findall(r"^## (.+)$", RUNBOOK, re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}
    assert alert["alert"] in RUNBOOK
    assert alert["annotations"]["summary"].endswith(".")
    assert alert["labels"]["severity"] in ("page", "ticket")


def test_rules_read_what_the_service_or_another_rule_makes() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    for rule in RULES:
        for name in re.findall(r"(?:job|instance):[\w:]+", rule["expr"]):
            assert name in recorded
        for name in re.findall(r"(?<!:)\b(?:maskwright|process)_\w+", rule["expr"]):
            assert name in exposed_labels(), rule


def test_no_rule_is_recorded_for_nobody() -> None:
    used = " ".join(rule["expr"] for rule in RULES)
    used += " ".join(path.read_text() for path in (ROOT / "deploy/grafana/dashboards").glob("*"))
    for rule in RULES:
        if "record" in rule:
            assert rule["record"] in used


def test_the_burn_rates_are_those_of_the_windows() -> None:
    for alert in ALERTS:
        if "Burn" in alert["alert"]:
            factors = re.findall(r"> (?:([\d.]+) \* )?0\.\d+", alert["expr"])
            windows = re.findall(r"_rate(\w+)", alert["expr"])
            expected = {"14.4": ["1h", "5m"], "6": ["6h", "30m"], "": ["3d", "6h"]}
            assert windows == expected[factors[0]]
            assert len(set(factors)) == 1
