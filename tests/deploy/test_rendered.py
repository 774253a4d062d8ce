"""What lies in `deploy/`, judged by the programs and schemas of Kubernetes; no cluster runs it."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tritonpy.cli.serve import options_of

from .. import fetched
from .manifests import (
    CHART,
    DEPLOY,
    RULES,
    Document,
    by_kind,
    check_by_schemas,
    containers,
    documents,
    render_program,
)

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(600)]  # the first time it is fetched

IMAGE = {"repository": "registry.example.com/tritonserver", "tag": "1"}
VALUES: dict[str, dict[str, Any]] = {
    "least": {"image": IMAGE},
    "claim": {
        "image": {**IMAGE, "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "models": {"claim": {"create": True, "storageClassName": "nfs", "size": "50Gi"}},
        "service": {"type": "LoadBalancer", "trafficDistribution": "PreferClose", "annotations": {"a": "b"}},
        "serviceAccount": {"create": False, "name": "mine"},
        "headlessService": {"enabled": False},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
        "autoscaling": {"engine": "hpa"},
        "monitoring": {"serviceMonitor": {"enabled": True}},
        "networkPolicy": {"enabled": True},
    },
    "router": {
        "image": IMAGE,
        "models": {
            "repositories": ["/models", "s3://bucket/models"],
            "volume": {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        },
        "objectStore": {"secretName": "bucket"},
        "temporarySizeLimit": "20Gi",
        "server": {"controlMode": "explicit", "extraArgs": ["--log-format=json"], "drainDelaySeconds": 20},
        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "16Gi"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"gpu": "yes"},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "vision"},
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        "router": {
            "enabled": True,
            "image": {"repository": "registry.example.com/router", "tag": "2"},
            "zone": "$(ZONE)",
            "replicaTokenSecret": "replica",
            "extraEnv": [{"name": "ZONE", "value": "west"}],
            "stateClaimName": "router-state",
            "extraArgs": [
                "--policy=least-busy",
                "--https-certificate=/tls/tls.crt",
                "--https-key=/tls/tls.key",
            ],
            "extraVolumes": [{"name": "tls", "secret": {"secretName": "router-tls"}}],
            "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
            "probeScheme": "HTTPS",
            "podAnnotations": {"a": "b"},
            "podLabels": {"team": "vision"},
            "priorityClassName": "high",
        },
        "autoscaling": {"engine": "keda", "pendingRequests": 16},
        "monitoring": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True},
        },
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {"matchLabels": {"client": "yes"}}}],
            "prometheus": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
            ],
        },
        "gateway": {
            "parentRefs": [{"name": "public", "namespace": "gateways"}],
            "http": {"enabled": True, "hostnames": ["models.example.com"]},
            "grpc": {"enabled": True, "hostnames": ["grpc.models.example.com"]},
        },
    },
}
PACKAGES = {
    "gateway.networking.k8s.io": "gateway-api",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
}
KSERVE = "kserve==0.21.0"


def helm(*arguments: str | Path, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    program, _ = fetched.helm_and_kubectl()
    command: list[str | Path] = [program, *arguments]
    if values is not None:
        command += ["--values", "-"]
    text = None if values is None else json.dumps(values)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)


def rendered(values: dict[str, Any]) -> list[Document]:
    done = helm("template", "demo", CHART, "--namespace=ml", values=values)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def kustomized(folder: Path) -> list[Document]:
    _, kubectl = fetched.helm_and_kubectl()
    done = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def of_kubernetes(document: Document) -> bool:
    return document["apiVersion"].partition("/")[0] not in {*PACKAGES, "serving.kserve.io"}


def check_by_types(found: list[Document], tmp_path: Path) -> int:
    """Refuse fields that further kinds do not have, by their types in TypeScript; counts what was checked."""
    versions = ["gateway-api@2.0.0", "keda@2.0.0", "prometheus-operator@6.0.0"]
    cache = fetched.CACHE / "kubernetes-models"
    modules = fetched.from_npm(
        cache, "typescript@5.9.3", *[f"@kubernetes-models/{version}" for version in versions]
    )
    lines = []
    for number, document in enumerate(each for each in found if not of_kubernetes(each)):
        group, version = document["apiVersion"].split("/")
        package = f"@kubernetes-models/{PACKAGES[group]}/{group}/{version}"
        lines.append(f'import type {{ I{document["kind"]} as Kind{number} }} from "{package}";')
        lines.append(f"export const document{number}: Kind{number} = {json.dumps(document)};")
    file = tmp_path / "documents.ts"
    file.write_text("\n".join(lines))
    (tmp_path / "node_modules").symlink_to(modules)
    options = "--noEmit --strict --skipLibCheck --module nodenext --moduleResolution nodenext --target es2022"
    done = subprocess.run(
        ["node", modules / "typescript/bin/tsc", *options.split(), file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return len(lines) // 2


@pytest.mark.parametrize("name", VALUES)
def test_the_chart_is_rendered_to_what_the_schemas_know(name: str, tmp_path: Path) -> None:
    found = rendered(VALUES[name])

    check_by_schemas(filter(of_kubernetes, found), tmp_path)
    checked = check_by_types(found, tmp_path) if not all(map(of_kubernetes, found)) else 0
    assert checked == {"least": 0, "claim": 1, "router": 5}[name]
    assert helm("lint", "--strict", CHART, values=VALUES[name]).returncode == 0


def test_the_checks_find_a_misspelt_field(tmp_path: Path) -> None:
    kinds = by_kind(rendered(VALUES["router"]))
    [scaled] = kinds["ScaledObject"]
    scaled["spec"]["minReplicas"] = 1
    deployment = kinds["Deployment"][0]
    deployment["spec"]["minReadySecs"] = 1

    with pytest.raises(AssertionError, match="minReplicas"):
        check_by_types([scaled], tmp_path)
    with pytest.raises(AssertionError, match="minReadySecs"):
        check_by_schemas([deployment], tmp_path)


def test_without_an_image_it_says_how_to_make_one() -> None:
    done = helm("template", "demo", CHART)

    assert done.returncode != 0
    assert "make one with `corectl compose`" in done.stderr


def test_a_value_that_is_misspelt_is_refused() -> None:
    done = helm("template", "demo", CHART, values={"image": IMAGE, "replicas": 3})

    assert done.returncode != 0
    assert "additional properties 'replicas' not allowed" in done.stderr


def test_autoscaled_servers_have_no_number_of_their_own() -> None:
    for name, count in (("least", 2), ("claim", None), ("router", None)):
        servers = by_kind(rendered(VALUES[name]))["Deployment"]
        [spec] = [each["spec"] for each in servers if each["metadata"]["name"] == "demo-tritonpy"]
        assert spec.get("replicas") == count


def test_requests_reach_servers_through_routers_only_where_there_are_routers() -> None:
    kinds = by_kind(rendered(VALUES["router"]))
    policies = {each["metadata"]["name"]: each["spec"]["ingress"] for each in kinds["NetworkPolicy"]}
    [peer] = policies["demo-tritonpy"][0]["from"]
    routes = kinds["HTTPRoute"] + kinds["GRPCRoute"]

    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "router"
    assert policies["demo-tritonpy-router"][0]["from"] == VALUES["router"]["networkPolicy"]["clients"]
    assert [each["spec"]["rules"][0]["backendRefs"][0] for each in routes] == [
        {"name": "demo-tritonpy-router", "port": 8000},
        {"name": "demo-tritonpy-router", "port": 8001},
    ]


def test_servers_tell_routers_of_themselves_where_both_know_the_token() -> None:
    kinds = by_kind(rendered(VALUES["router"]))
    server, router = [found for _, found in containers(kinds["Deployment"])]
    if server["name"] == "router":
        server, router = router, server
    [policy] = [each for each in kinds["NetworkPolicy"] if each["metadata"]["name"] == "demo-tritonpy"]
    [setting] = [each for each in server["args"] if each.startswith("--frontend-config=replica,")]
    settings = dict(each.split("=") for each in setting.removeprefix("--frontend-config=replica,").split(","))

    assert f"--replica-service-port={settings['port']}" in router["args"]
    assert f"--replica-token-file={settings['token-file']}" in router["args"]
    assert {"name": "replica", "containerPort": int(settings["port"])} in server["ports"]
    assert {"port": "replica"} in policy["spec"]["ingress"][0]["ports"]
    assert all(
        "replica-token" in {each["name"] for each in found["volumeMounts"]} for found in (server, router)
    )
    assert options_of(server["args"]).frontend_config
    assert "token" not in json.dumps([found for _, found in containers(rendered(VALUES["least"]))])


def test_routers_keep_loaded_models_together_where_they_share_a_claim() -> None:
    [(pod, router)] = [
        found for found in containers(rendered(VALUES["router"])) if found[1]["name"] == "router"
    ]
    [file] = [Path(each.partition("=")[2]) for each in router["args"] if each.startswith("--state-file=")]
    mounts = {each["mountPath"]: each for each in router["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}

    assert not mounts[str(file.parent)].get("readOnly")
    claim = volumes[mounts[str(file.parent)]["name"]]["persistentVolumeClaim"]
    assert claim == {"claimName": "router-state"}
    assert {volumes[each["name"]]["name"] for each in mounts.values()} == volumes.keys()
    assert {router[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("readiness", "liveness")} == {"HTTPS"}
    assert "--state-file" not in json.dumps(rendered(VALUES["least"] | {"router": {"enabled": True}}))


@pytest.mark.parametrize(
    ("server", "router", "expected"),
    [
        ({}, {}, ("HTTP", "HTTP")),
        ({"probeScheme": "HTTPS"}, {}, ("HTTPS", "HTTPS")),
        ({"probeScheme": "HTTPS"}, {"probeScheme": "HTTP"}, ("HTTPS", "HTTP")),
        ({}, {"probeScheme": "HTTPS"}, ("HTTP", "HTTPS")),
    ],
)
def test_routers_are_probed_as_servers_are_unless_values_say_otherwise(
    server: dict[str, str], router: dict[str, str], expected: tuple[str, str]
) -> None:
    values = {"image": IMAGE, "server": server, "router": {"enabled": True, **router}}
    schemes: dict[bool, set[str]] = {False: set(), True: set()}
    for _, found in containers(rendered(values)):
        probes = [probe for name, probe in found.items() if name.endswith("Probe")]
        schemes[found["name"] == "router"] |= {probe["httpGet"]["scheme"] for probe in probes}

    assert (schemes[False], schemes[True]) == ({expected[0]}, {expected[1]})


def test_every_selector_finds_the_pods_of_one_deployment() -> None:
    kinds = by_kind(rendered(VALUES["router"]))
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in kinds["Deployment"]
    }

    def selected(labels: dict[str, str]) -> list[str]:
        return [name for name, found in pods.items() if labels.items() <= found.items()]

    for service in kinds["Service"]:
        name = service["metadata"]["name"].removesuffix("-headless")
        assert selected(service["spec"]["selector"]) == [name]
    for kind in ("Deployment", "PodDisruptionBudget"):
        for each in kinds[kind]:
            found = selected(each["spec"]["selector"]["matchLabels"])
            assert found == [each["metadata"]["name"]]
    [monitor] = kinds["PodMonitor"]
    assert len(selected(monitor["spec"]["selector"]["matchLabels"])) == 2


def test_the_rules_of_the_chart_are_those_of_its_file() -> None:
    [rule] = by_kind(rendered(VALUES["router"]))["PrometheusRule"]

    assert rule["spec"] == yaml.safe_load(RULES.read_text())


def test_manifests_are_what_the_chart_makes() -> None:
    made = render_program().manifests(str(fetched.helm_and_kubectl()[0]))

    assert {path: path.read_text() for path in made} == made, "python deploy/render.py HELM writes them anew"


@pytest.mark.parametrize("folder", ["servers", "router", "example"])
def test_kustomize_makes_what_the_schemas_know(folder: str, tmp_path: Path) -> None:
    found = kustomized(DEPLOY / "manifests" / folder)

    check_by_schemas(filter(of_kubernetes, found), tmp_path)
    assert "Deployment" in by_kind(found)


def test_a_kustomization_of_ones_own_changes_namespace_image_and_models() -> None:
    found = kustomized(DEPLOY / "manifests/example")

    assert {each["metadata"]["namespace"] for each in found} == {"inference"}
    assert {container["image"] for _, container in containers(found)} == {
        "registry.example.com/tritonserver:1"
    }
    [binding] = by_kind(found)["RoleBinding"]
    assert binding["subjects"][0]["namespace"] == "inference"
    mounts = {each["name"] for _, container in containers(found) for each in container["volumeMounts"]}
    assert mounts == {"tmp", "models"}


class Types:
    """The classes of KServe's SDK, read from its files: importing them would need all that the SDK needs."""

    def __init__(self, folder: Path) -> None:
        self._fields: dict[str, dict[str, str]] = {}
        for path in folder.glob("v1*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found = {
                        target.id: ast.literal_eval(each.value)
                        for each in node.body
                        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict)
                        for target in each.targets
                        if isinstance(target, ast.Name)
                    }
                    names, kinds = found.get("attribute_map", {}), found.get("openapi_types", {})
                    self._fields[node.name] = {names[field]: kind for field, kind in kinds.items()}

    def unknown(self, kind: str, value: Any, where: str = "") -> list[str]:
        """The fields of a value that its kind does not have."""
        if kind.startswith("list["):
            return [one for each in value for one in self.unknown(kind[5:-1], each, where)]
        fields = self._fields.get(kind)
        if fields is None or not isinstance(value, dict):
            return []  # a value, or of Kubernetes
        found = [f"{where}.{name}" for name in value if name not in fields]
        for name in value.keys() & fields.keys():
            found += self.unknown(fields[name], value[name], f"{where}.{name}")
        return found


def test_runtime_and_services_have_fields_that_kserve_knows() -> None:
    types = Types(fetched.from_pypi(fetched.CACHE / "kserve", KSERVE) / "kserve/models")
    found = [each for path in DEPLOY.glob("kserve/*.yaml") for each in documents(path.read_text())]

    for document in found:
        version = document["apiVersion"].rpartition("/")[2]
        assert types.unknown(version.capitalize() + document["kind"], document) == []
    assert len(found) == 3
    misspelt = {"spec": {"predictor": {"model": {"modelFormats": {}}}}}
    assert types.unknown("V1beta1InferenceService", misspelt) == [".spec.predictor.model.modelFormats"]


def test_the_runtime_is_a_pod_that_kubernetes_knows(tmp_path: Path) -> None:
    [runtime] = documents((DEPLOY / "kserve/clusterservingruntime.yaml").read_text())
    pod = {name: runtime["spec"][name] for name in ("containers", "volumes")}

    check_by_schemas(
        [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": pod}], tmp_path
    )


def test_rules_record_and_alert_what_they_should() -> None:
    promtool = fetched.promtool()
    for command in (
        ["check", "rules", RULES],
        ["test", "rules", Path(__file__).with_name("rules_test.yaml")],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
