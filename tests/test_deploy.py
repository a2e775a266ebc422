"""What can be checked of the files in deploy/ without a cluster: they load, and what hapvr relies on is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from hapvr.cli.app import app

DEPLOY = Path(__file__).parents[1] / "deploy"
COMMANDS: Any = get_command(app)


def load(name: str) -> list[dict[str, Any]]:
    yaml = importlib.import_module("yaml")
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def list_containers() -> Iterator[tuple[str, dict[str, Any]]]:
    """The containers of all pods, with the volumes that their pod has."""
    deployment, _ = load("kubernetes.yaml")
    (job,) = load("kuberay.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    specs = [deployment["spec"], cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for pod in (spec["template"]["spec"] for spec in specs):
        for container in pod["containers"]:
            named = {volume["name"] for volume in pod["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= named
            assert pod["securityContext"]["runAsNonRoot"]
            yield container["name"], container


def list_commands() -> dict[str, list[str]]:
    """The command lines of hapvr that the files run, without `hapvr`."""
    (compose,) = load("compose.yaml")
    found = {
        name: [*compose["services"][name]["entrypoint"], *compose["services"][name]["command"]]
        for name in ("serve", "add")
    }
    found |= {name: [*one["command"], *one["args"]] for name, one in list_containers() if name == "serve"}
    found["RayJob"] = load("kuberay.yaml")[0]["spec"]["entrypoint"].split()
    assert all(words[0] == "hapvr" for words in found.values())
    return {name: words[1:] for name, words in found.items()}


@pytest.mark.parametrize("words", list_commands().values(), ids=list(list_commands()))
def test_a_command_has_the_options_that_it_is_given(words: list[str]) -> None:
    command = COMMANDS.commands[words[0]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert words[1].startswith("s3://")


def test_services_are_pinned_and_reached_from_this_machine_alone() -> None:
    (compose,) = load("compose.yaml")
    services = compose["services"]
    assert services.keys() == {"serve", "add", "minio", "bucket", "milvus"}
    assert (DEPLOY / services["serve"]["build"]["context"] / services["serve"]["build"]["dockerfile"]).is_file()
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["image"] == "hapvr" or re.search(r":(v\d|RELEASE\.20)", service["image"]), name
        for volume in service.get("volumes", []):
            assert volume.startswith("$") or volume.split(":")[0] in compose["volumes"]
    secrets = services["serve"]["environment"]
    assert secrets["HAPVR_TOKEN"] == "${HAPVR_TOKEN:?set HAPVR_TOKEN}"  # it listens beyond the container
    assert secrets["AWS_SECRET_ACCESS_KEY"] == services["minio"]["environment"]["MINIO_ROOT_PASSWORD"]
    assert services["serve"]["environment"]["AWS_ENDPOINT_URL"] == "http://minio:9000"


def test_the_service_finds_its_pods_and_the_readers_have_a_token() -> None:
    deployment, service = load("kubernetes.yaml")
    template = deployment["spec"]["template"]
    assert (
        service["spec"]["selector"] == template["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    )
    containers = dict(list_containers())
    assert containers.keys() == {"serve", "ray-head", "ray-worker"}
    assert containers["serve"]["envFrom"] == [{"secretRef": {"name": "hapvr"}}]
    assert service["spec"]["ports"][0]["targetPort"] == containers["serve"]["ports"][0]["name"]
    for probe, address in (("readinessProbe", "/api/ready"), ("livenessProbe", "/api/health")):
        assert address in containers["serve"][probe]["exec"]["command"][-1]


def test_ray_in_the_cluster_is_one_that_hapvr_takes_and_paths_are_the_same_everywhere() -> None:
    (job,) = load("kuberay.yaml")
    assert tuple(map(int, job["spec"]["rayClusterSpec"]["rayVersion"].split("."))) >= (2, 50)
    mounts = [one["volumeMounts"] for name, one in list_containers() if name.startswith("ray-")]
    assert mounts[0] == mounts[1]
    assert "/videos" in job["spec"]["entrypoint"]
