"""The image and the compose file: valid, hardened, and true to the service's settings."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import PREFIX, Settings, variable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
INFERENCE = ("inference", "inference-cpu")
LOCKS = ("requirements/serve.txt", "requirements/serve-gpu.txt")
SET_BY_THE_IMAGE = {"host", "port", "device"}

every_service = pytest.mark.parametrize("name", SERVICES)
every_lock = pytest.mark.parametrize("lock", LOCKS)


def run(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text()


def with_defaults(text: str) -> str:
    """The text with each ${NAME:-default} at its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_the_compose_file_satisfies_the_compose_specification() -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    result = run(sys.executable, "-m", "check_jsonschema", *schema, "docker-compose.yml")
    assert result.returncode == 0, result.stdout


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    result = run(Path(sys.executable).parent / "hadolint", "deploy/Dockerfile")
    assert result.returncode == 0, result.stdout


def test_every_file_that_names_a_setting_names_a_real_one() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    real = {variable(field.name) for field in dataclasses.fields(Settings)}
    for path in (*files, ROOT / "docker-compose.yml", ROOT / ".env"):
        named = set(re.findall(rf"{PREFIX}[A-Z_]+", path.read_text()))
        assert named <= real, path


@pytest.mark.parametrize("name", INFERENCE)
def test_every_setting_can_be_given_unless_the_image_sets_it(name: str) -> None:
    given = {field.name for field in dataclasses.fields(Settings)} - SET_BY_THE_IMAGE
    assert set(SERVICES[name]["environment"]) == {variable(setting) for setting in given}


def test_the_image_sets_the_host_the_port_and_for_each_target_the_device() -> None:
    for setting in SET_BY_THE_IMAGE:
        assert f"{variable(setting)}=" in dockerfile()
    devices = re.findall(rf"{variable('device')}=(\w+)", dockerfile())
    assert devices == ["cpu", "cuda"]


def test_the_env_file_explains_every_variable_that_the_compose_file_reads() -> None:
    read = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    explained = set(re.findall(r"^#? ?(\w+)=", (ROOT / ".env").read_text(), flags=re.MULTILINE))
    assert read <= explained


def test_up_without_more_starts_the_gpu_service_and_all_that_watches_it() -> None:
    profiles = re.findall(r"^COMPOSE_PROFILES=(.*)$", (ROOT / ".env").read_text(), re.MULTILINE)
    started = [
        name
        for name, service in SERVICES.items()
        if "profiles" not in service or set(service["profiles"]) & set(profiles)
    ]
    assert started == ["inference", "prometheus", "alertmanager", "grafana", "gpu-exporter"]
    devices = SERVICES["inference"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]


@pytest.mark.parametrize("name", INFERENCE)
def test_the_service_is_stopped_by_force_only_after_its_drain(name: str) -> None:
    assert SERVICES[name]["stop_grace_period"].endswith("s")
    grace_s = float(SERVICES[name]["stop_grace_period"].removesuffix("s"))
    drain_s = Settings().drain_delay + Settings().drain_seconds
    assert grace_s >= drain_s + 10  # and the longest batch


@every_service
def test_every_published_port_is_on_loopback(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        address = port["host_ip"] if isinstance(port, dict) else port
        assert with_defaults(address).split(":")[0] == "127.0.0.1"


@every_service
def test_a_container_runs_read_only_without_capabilities_and_within_limits(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] > 0
    assert service["mem_limit"]
    assert service["logging"]["options"]["max-size"]
    assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service)


@every_service
def test_what_is_mounted_is_there_and_cannot_be_written(name: str) -> None:
    for mount in SERVICES[name]["volumes"]:
        if isinstance(mount, dict):
            source, read_only = with_defaults(mount["source"]), mount["read_only"]
        else:
            source, read_only = mount.split(":")[0], mount.endswith(":ro")
        if source.startswith("."):  # else a volume, which is there to be written
            assert (ROOT / source).is_dir()
            assert read_only


@every_service
def test_an_image_is_built_here_or_pinned_to_a_version(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        assert service["pull_policy"] == "build"
        assert f" AS {service['build']['target']}\n" in dockerfile()
        assert (ROOT / service["build"]["dockerfile"]).is_file()
    else:
        assert re.fullmatch(r"[\w/.-]+:v?\d+\.\d+\.\d+[\w.-]*", service["image"])


def test_prometheus_scrapes_every_replica_of_whichever_inference_service_runs() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    (found,) = jobs["maskwright"]["dns_sd_configs"]
    port = re.findall(rf"{variable('port')}=(\d+)", dockerfile())[0]
    assert SERVICES["inference-cpu"]["networks"]["default"]["aliases"] == ["inference"]
    assert (found["names"], found["port"]) == (["inference"], int(port))
    for name in INFERENCE:
        assert with_defaults(SERVICES[name]["ports"][0]) == f"127.0.0.1:8000:{port}"
    assert jobs["gpu"]["dns_sd_configs"][0]["names"] == ["gpu-exporter"]
    (alertmanager,) = prometheus["alerting"]["alertmanagers"]
    name, _, port = alertmanager["static_configs"][0]["targets"][0].partition(":")
    assert f":{port}" in SERVICES[name]["ports"][0]


def test_the_proxy_allows_no_more_than_the_service() -> None:
    nginx = (DEPLOY / "nginx" / "nginx.conf").read_text()
    assert "client_max_body_size 1m;" in nginx
    assert Settings().max_body_bytes == 1 << 20
    assert "server inference:8000 resolve" in (DEPLOY / "nginx" / "upstream.conf").read_text()


def test_telemetry_is_off_and_the_user_is_not_root() -> None:
    stages = dockerfile().split("\nFROM ")
    assert "ORT_DISABLE_TELEMETRY=1" in dockerfile()
    assert [stage.count("USER 10001\n") for stage in stages[-3:]] == [1, 1, 1]


@every_lock
def test_the_image_installs_from_a_hashed_lock_without_torch(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    names = [re.split(r"[=\[ ;]", line)[0] for line in lines if re.match(r"[a-z]", line)]
    assert names
    assert not {"torch", "onnx"} & set(names)
    assert "\n".join(lines).count("--hash=sha256:") >= len(names)
    assert f"COPY {lock} ." in dockerfile()
    assert f"--require-hashes --only-binary=:all: --requirement {Path(lock).name}" in dockerfile()


def test_the_build_context_has_what_the_image_is_built_from_and_no_more() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert "*" in rules
    code = {"model", "export", "service"}
    assert kept == code | {"pyproject.toml", "README.md", "LICENSE", "requirements"}
