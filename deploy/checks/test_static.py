"""What can be said of the files without running the service: linters, schemas, rule tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.checks.parts import DEPLOY, ROOT

TOOLS = ROOT / ".tools"
CHART = DEPLOY / "helm" / "maskwright"
HELM = TOOLS / "layer" / "helm" / "helm"
EXAMPLES = [None, *sorted((CHART / "examples").glob("*.yaml"))]
# Not for Compose and a cluster that takes the image from its own registry.
SKIPPED = "CKV_DOCKER_7"  # the base is a build argument; its default names a tag


def run(*command: str | Path, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def assert_passes(*command: str | Path, cwd: Path = ROOT) -> str:
    ended = run(*command, cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_prometheus_accepts_its_configuration_and_rules() -> None:
    rules = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
    assert_passes("promtool", "check", "rules", *rules)
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    here = config.replace("/etc/prometheus/", f"{DEPLOY}/prometheus/")
    checked = TOOLS / "prometheus.yml"
    checked.write_text(here)
    assert_passes("promtool", "check", "config", checked)


def test_every_alert_fires_and_stays_quiet_as_its_cases_say() -> None:
    tests = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
    assert_passes("promtool", "test", "rules", *tests)


def test_alertmanager_accepts_its_configuration() -> None:
    assert_passes("amtool", "check-config", DEPLOY / "alertmanager" / "alertmanager.yml")


@pytest.mark.parametrize("profiles", ["gpu", "cpu", "gpu,edge", "cpu,edge"])
def test_compose_is_valid_for_every_profile(profiles: str, tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    compose["services"] = {
        name: service
        for name, service in compose["services"].items()
        if set(service.get("profiles", profiles.split(","))) & set(profiles.split(","))
    }
    (tmp_path / "compose.yml").write_text(yaml.safe_dump(compose))
    schema = ("--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yml")
    assert_passes(sys.executable, "-m", "check_jsonschema", *schema)


def test_dclint_finds_no_error() -> None:
    assert_passes(TOOLS / "node_modules" / ".bin" / "dclint", "--quiet", "docker-compose.yml")


def test_checkov_finds_nothing_in_the_dockerfile() -> None:
    flags = ("--quiet", "--compact", "--framework", "dockerfile", "--skip-download")
    file = ("--file", "deploy/Dockerfile", "--skip-check", SKIPPED)
    assert_passes(TOOLS / "venv" / "bin" / "checkov", *flags, *file)


def test_helm_lints_the_chart() -> None:
    assert_passes(HELM, "lint", "--strict", CHART)


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem if path else "defaults")
def test_what_the_chart_makes_is_valid_kubernetes(values: Path | None, tmp_path: Path) -> None:
    given = ("--values", values) if values else ()
    made = assert_passes(HELM, "template", "release", CHART, *given, "--namespace", "prod")
    objects = [found for found in yaml.safe_load_all(made) if found]
    # ScaledObject and ServiceMonitor are not Kubernetes' own: no schema of them is at hand.
    known = [found for found in objects if "." not in found["apiVersion"].split("/")[0] or
             found["apiVersion"].split("/")[0].endswith(".k8s.io")]  # fmt: skip
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(known))
    for version in ("1.31", "1.33", "1.35"):
        validate = TOOLS / "venv" / "bin" / "kubernetes-validate"
        assert_passes(validate, "--strict", "--kubernetes-version", version, file)
    kinds = {found["kind"] for found in objects}
    assert {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    if values and values.stem == "gpu-autoscaled":
        assert {"ScaledObject", "ServiceMonitor"} <= kinds


@pytest.mark.parametrize(
    "wrong", ["replicaz=2", "device=tpu", "settings.port=1", "autoscaling.maxReplicas=0"]
)
def test_the_chart_refuses_values_that_it_does_not_know(wrong: str) -> None:
    assert run(HELM, "template", "release", CHART, "--set", wrong).returncode != 0


def test_a_large_number_reaches_the_service_as_it_was_written() -> None:
    made = assert_passes(HELM, "template", "r", CHART, "--set", "settings.max_body_bytes=2097152")
    assert 'value: "2097152"' in made


def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    from deploy.checks.test_edge import nginx_configuration

    assert_passes("nginx", "-t", "-c", nginx_configuration(tmp_path, ports=[8101, 8102]))
