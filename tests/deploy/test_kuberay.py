"""The example for KubeRay in `deploy/ray`: what it says, and what the schemas of Kubernetes say of it.

No package has the schemas of KubeRay. So the fields of RayCluster and RayJob are compared with those of
`ray.io/v1` that are written down here, and with those that dagster-ray, a client of KubeRay, knows; pods, of
which most of the example is, and all that is not KubeRay's, with the schemas of Kubernetes itself.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from tritonpy_router import cluster_cli
from tritonpy_router.engines import FleetPlan

from .. import fetched
from .manifests import DEPLOY, ROOT, Document, by_kind, check_by_schemas, documents

CLUSTER = documents((DEPLOY / "ray/raycluster.yaml").read_text())
FLEET = documents((DEPLOY / "ray/fleet.yaml").read_text())


def _strict(required: tuple[str, ...] = (), **properties: Document) -> Document:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT, _FLAG, _COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_OF_KUBERNETES = {"type": "object"}  # checked by its own schemas
_GROUP = {"rayStartParams": _TEXTS, "template": _OF_KUBERNETES, "labels": _TEXTS, "resources": _TEXTS}
SPEC = {
    "RayCluster": _strict(
        ("headGroupSpec",),
        rayVersion=_TEXT,
        enableInTreeAutoscaling=_FLAG,
        autoscalerOptions=_strict(
            (),
            resources=_OF_KUBERNETES,
            image=_TEXT,
            imagePullPolicy=_TEXT,
            env={"type": "array"},
            envFrom={"type": "array"},
            volumeMounts={"type": "array"},
            securityContext=_OF_KUBERNETES,
            idleTimeoutSeconds=_COUNT,
            upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
            version={"enum": ["v1", "v2"]},
        ),
        headServiceAnnotations=_TEXTS,
        suspend=_FLAG,
        gcsFaultToleranceOptions=_OF_KUBERNETES,
        headGroupSpec=_strict(
            ("template",),
            serviceType=_TEXT,
            headService=_OF_KUBERNETES,
            enableIngress=_FLAG,
            **_GROUP,
        ),
        workerGroupSpecs={
            "type": "array",
            "items": _strict(
                ("groupName", "minReplicas", "maxReplicas", "template"),
                groupName=_TEXT,
                replicas=_COUNT,
                minReplicas=_COUNT,
                maxReplicas=_COUNT,
                numOfHosts=_COUNT,
                idleTimeoutSeconds=_COUNT,
                suspend=_FLAG,
                scaleStrategy=_OF_KUBERNETES,
                **_GROUP,
            ),
        },
    ),
    "RayJob": _strict(
        (),
        activeDeadlineSeconds=_COUNT,
        backoffLimit=_COUNT,
        clusterSelector=_TEXTS,
        entrypoint=_TEXT,
        jobId=_TEXT,
        metadata=_TEXTS,
        rayClusterSpec=_OF_KUBERNETES,
        runtimeEnvYAML=_TEXT,
        shutdownAfterJobFinishes=_FLAG,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        submitterConfig=_OF_KUBERNETES,
        submitterPodTemplate=_OF_KUBERNETES,
        suspend=_FLAG,
        ttlSecondsAfterFinished=_COUNT,
    ),
}


def cluster_spec() -> Document:
    [found] = by_kind(CLUSTER)["RayCluster"]
    spec: Document = found["spec"]
    return spec


def templates() -> dict[str, Document]:
    """The templates of all pods, by what they are."""
    spec = cluster_spec()
    workers = {group["groupName"]: group["template"] for group in spec["workerGroupSpecs"]}
    [job] = FLEET
    return {
        "head": spec["headGroupSpec"]["template"],
        **workers,
        "submitter": job["spec"]["submitterPodTemplate"],
    }


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> FleetPlan:
    """What the entry point of the job asks the engine for."""
    plans: list[FleetPlan] = []

    class Taken:
        def up(self, name: str, plan: FleetPlan) -> None:
            plans.append(plan)

        def status(self, name: str) -> list[Any]:
            return []

    monkeypatch.setattr("tritonpy_router.engines.find_engine", lambda engine, address: Taken())
    [job] = FLEET
    words = job["spec"]["entrypoint"].split()
    result = CliRunner().invoke(cluster_cli.cluster, words[2:])
    assert (words[:2], result.exit_code) == (["corectl", "cluster"], 0), result.output
    [plan] = plans
    return plan


@pytest.mark.parametrize("document", [*by_kind(CLUSTER)["RayCluster"], *FLEET], ids=lambda each: each["kind"])
def test_the_fields_are_those_of_kuberay(document: Document) -> None:
    assert document["apiVersion"] == "ray.io/v1"
    jsonschema.validate(document["spec"], SPEC[document["kind"]])


@pytest.mark.parametrize(
    ("of", "wrong"),
    [("workerGroupSpecs", "minReplica"), ("headGroupSpec", "rayStartParam"), ("", "rayVersions")],
)
def test_a_misspelt_field_is_found(of: str, wrong: str) -> None:
    spec = yaml.safe_load(yaml.safe_dump(cluster_spec()))
    where = spec[of] if of else spec
    (where[0] if isinstance(where, list) else where)[wrong] = "1"

    with pytest.raises(jsonschema.ValidationError, match=wrong):
        jsonschema.validate(spec, SPEC["RayCluster"])


def test_there_is_room_for_every_server_that_the_fleet_may_have(planned: FleetPlan) -> None:
    [group] = cluster_spec()["workerGroupSpecs"]

    in_a_pod = int(group["rayStartParams"]["num-cpus"]) // int(planned.resources["cpu"])
    assert in_a_pod == 1
    assert group["maxReplicas"] >= planned.most_replicas + planned.spare_count + 1  # one more in an update
    assert cluster_spec()["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_pods_have_the_time_that_their_servers_and_routers_take_to_end(planned: FleetPlan) -> None:
    for name in ("head", "servers"):
        assert templates()[name]["spec"]["terminationGracePeriodSeconds"] == planned.exit_timeout_s + 5


def test_models_are_mounted_where_the_fleet_looks_for_them(planned: FleetPlan) -> None:
    assert "--model-repository=/models" in planned.server_flags
    for name in ("head", "servers"):
        [container] = templates()[name]["spec"]["containers"]
        assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]


def test_the_service_has_the_ports_of_the_routers(planned: FleetPlan) -> None:
    assert planned.router_flags is not None
    flags = [*planned.router_flags]
    ports = {name: int(flags[flags.index(f"--{name}-port") + 1]) for name in ("http", "grpc", "metrics")}
    [service] = by_kind(CLUSTER)["Service"]

    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    for name in ("head", "servers"):
        [container] = templates()[name]["spec"]["containers"]
        assert ports.items() <= {each["name"]: each["containerPort"] for each in container["ports"]}.items()


def test_selectors_name_the_cluster() -> None:
    kinds = by_kind(CLUSTER)
    [cluster], [job] = kinds["RayCluster"], FLEET
    own = {"ray.io/cluster": cluster["metadata"]["name"]}  # KubeRay labels pods with it

    assert job["spec"]["clusterSelector"] == own
    assert kinds["NetworkPolicy"][0]["spec"]["podSelector"]["matchLabels"] == own
    assert kinds["Service"][0]["spec"]["selector"] == {**own, "ray.io/node-type": "worker"}
    assert kinds["PodDisruptionBudget"][0]["spec"]["selector"]["matchLabels"] == {
        **own,
        "ray.io/node-type": "worker",
    }


def test_budgets_of_pods_without_a_scale_are_a_number_that_stays() -> None:
    [budget] = by_kind(CLUSTER)["PodDisruptionBudget"]
    [group] = cluster_spec()["workerGroupSpecs"]

    assert isinstance(budget["spec"]["minAvailable"], int)
    assert "maxUnavailable" not in budget["spec"]
    assert budget["spec"]["minAvailable"] < group["minReplicas"]


def test_no_container_may_do_more_than_it_needs() -> None:
    for template in templates().values():
        pod = template["spec"]
        for container in pod["containers"]:
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert cluster_spec()["autoscalerOptions"]["securityContext"]["readOnlyRootFilesystem"]


def test_all_pods_have_one_image() -> None:
    images = {each["image"] for template in templates().values() for each in template["spec"]["containers"]}

    assert len(images) == 1


def test_the_image_has_the_release_of_ray_that_the_cluster_says_and_copies_what_is_there() -> None:
    lines = (DEPLOY / "ray/Containerfile").read_text().splitlines()
    [base] = [line.split()[1] for line in lines if line.startswith("FROM ")]
    copied = {line.split()[2]: line.split()[1] for line in lines if line.startswith("COPY ")}
    [installed] = [line.split()[4:] for line in lines if line.startswith("RUN pip install")]

    assert base.startswith(f"rayproject/ray:{cluster_spec()['rayVersion']}-py")
    for path in installed:
        [source] = [
            ROOT / copied[to] / path[len(to) + 1 :] for to in copied if f"{path}/".startswith(f"{to}/")
        ]
        assert (source / "pyproject.toml").is_file()


@pytest.mark.emulator
@pytest.mark.timeout(600)
def test_the_schemas_of_kubernetes_know_pods_and_all_else(tmp_path: Path) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": name},
            "spec": template["spec"],
        }
        for name, template in templates().items()
    ]
    others = [each for each in CLUSTER if each["kind"] != "RayCluster"]

    check_by_schemas([*pods, *others], tmp_path)
    pods[0]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(AssertionError, match="volumeMount"):
        check_by_schemas(pods, tmp_path)


@pytest.mark.emulator
@pytest.mark.timeout(600)
def test_another_client_of_kuberay_knows_the_fields() -> None:
    folder = fetched.from_pypi(fetched.CACHE / "dagster-ray", "dagster-ray==0.4.8")
    tree = ast.parse((folder / "dagster_ray/kuberay/configs.py").read_text())
    [known] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RayClusterSpec"]
    names = {
        node.target.id
        for node in known.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    camel = {
        first + "".join(map(str.capitalize, rest)) for first, *rest in (name.split("_") for name in names)
    }

    assert cluster_spec().keys() <= camel
    assert SPEC["RayCluster"]["properties"].keys() <= camel
