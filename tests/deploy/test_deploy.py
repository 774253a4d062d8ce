"""What lies in `deploy/`, as far as it can be read without programs of Kubernetes."""

from __future__ import annotations

import importlib.metadata
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from tritonpy.cli.serve import options_of
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_router import metrics as router_metrics
from tritonpy_router import route_cli
from tritonpy_router.endpoint_slices import EndpointSliceMembership
from tritonpy_router.options import RouterOptions
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from ..observability.test_reference import expressions, metric_names
from ..servers import local_options
from .manifests import CHART, DEPLOY, ROOT, RULES, Document, containers, documents, render_program

WHOLE = [path for path in DEPLOY.rglob("*.yaml") if "templates" not in path.parts]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
RUNNING = [path for path in WHOLE if path.parent.name in ("servers", "router", "kserve")]
DASHBOARD = json.loads((ROOT / "docs/grafana/tritonpy-cluster.json").read_text())


def running() -> list[tuple[Document, Document]]:
    return [found for path in RUNNING for found in containers(documents(path.read_text()))]


def test_the_configuration_of_envoy_is_what_the_command_writes() -> None:
    made = render_program().envoy()

    assert {path: path.read_text() for path in made} == made, "python deploy/render.py HELM writes it anew"


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_file_is_yaml(path: Path) -> None:
    assert documents(path.read_text())


def test_the_chart_has_the_version_of_the_distributions() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert {chart["version"], chart["appVersion"]} == {importlib.metadata.version("tritonpy")}


def test_the_values_are_those_of_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


def paths(values: dict[str, Any], schema: dict[str, Any], before: str = "") -> Iterator[tuple[str, bool]]:
    """Every name that a value or the schema knows, and whether both do."""
    known = schema.get("properties")
    if known is None:
        return  # of Kubernetes, which knows more than we
    for name in sorted({*values, *known} - {"global"}):
        yield f"{before}{name}", name in values and name in known
        if isinstance(values.get(name), dict) and before + name != "router.image":
            yield from paths(values[name], known.get(name, {}), f"{before}{name}.")


def test_schema_and_values_know_the_same_names() -> None:
    assert [name for name, is_in_both in paths(VALUES, SCHEMA) if not is_in_both] == []


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 3},
        {"server": {"drainDelaySecs": 3}},
        {"server": {"controlMode": "EXPLICIT"}},
        {"autoscaling": {"engine": "vpa"}},
        {"autoscaling": {"minReplicas": 0}},
        {"image": {"digest": "sha256:1"}},
        {"router": {"zones": "a"}},
    ],
)
def test_values_that_nobody_reads_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in CHART.glob("templates/*"))

    unused = [
        name
        for name, _ in paths(VALUES, SCHEMA)
        if not re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", text)
    ]

    assert unused == []


def options_of_a_server(container: Document) -> ServerOptions:
    flags = [flag.replace("--model-store=", "--model-repository=") for flag in container["args"]]
    return options_of(flags)


def test_servers_understand_their_arguments_and_are_given_the_time_that_they_ask_for(tmp_path: Path) -> None:
    servers = [found for found in running() if found[1]["command"] == ["corectl", "serve"]]

    assert len(servers) == 2
    for pod, container in servers:
        options = options_of_a_server(container)
        assert options.model_repositories
        assert options.drain_delay_s == 10
        if "terminationGracePeriodSeconds" in pod:
            assert pod["terminationGracePeriodSeconds"] == options.drain_delay_s + options.exit_timeout_s + 5


def test_services_of_kserve_give_servers_the_time_that_the_runtime_asks_for() -> None:
    [(_, container)] = containers(documents((DEPLOY / "kserve/clusterservingruntime.yaml").read_text()))
    options = options_of_a_server(container)

    for path in DEPLOY.glob("kserve/inferenceservice-*.yaml"):
        [service] = documents(path.read_text())
        grace_s = service["spec"]["predictor"]["terminationGracePeriodSeconds"]
        assert grace_s == options.drain_delay_s + options.exit_timeout_s + 5
        for port in service["spec"]["predictor"]["model"].get("ports", ()):
            assert port["containerPort"] == options.grpc_port
    assert {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")} == {
        options.http_port
    }


def test_routers_understand_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    [(pod, container)] = [found for found in running() if found[1]["command"] == ["corectl", "route"]]
    seen: list[tuple[RouterOptions, object]] = []
    monkeypatch.setattr(
        "tritonpy_router.program.run", lambda options, members, _: seen.append((options, members)) or 0
    )
    monkeypatch.setattr("tritonpy_router.endpoint_slices.ACCOUNT", Path("/nonexistent"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    arguments = [argument.replace("k8s:///", "k8s://ml/") for argument in container["args"]]

    result = CliRunner().invoke(route_cli.route, arguments)

    assert result.exit_code == 0, result.output
    [(options, members)] = seen
    assert isinstance(members, EndpointSliceMembership)
    assert pod["terminationGracePeriodSeconds"] == options.drain_delay_s + options.exit_timeout_s + 5


def test_the_service_that_routers_follow_is_that_of_the_servers() -> None:
    [(_, container)] = [found for found in running() if found[1]["command"] == ["corectl", "route"]]
    servers = documents((DEPLOY / "manifests/servers/tritonpy.yaml").read_text())
    [service] = [found["metadata"]["name"] for found in servers if found["kind"] == "Service"][:1]

    assert f"--members=k8s:///{service}" in container["args"]


def test_no_container_may_do_more_than_it_needs() -> None:
    for pod, container in running():
        rights = {**pod.get("securityContext", {}), **container["securityContext"]}
        assert rights["runAsNonRoot"]
        assert rights["readOnlyRootFilesystem"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not rights["allowPrivilegeEscalation"]
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def exported() -> set[str]:
    """Every name of a metric of servers and routers."""
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    names = set(re.findall(r"^\| `(\w+)` \|", reference, re.MULTILINE))
    text = Path(router_metrics.__file__).read_text()
    router = set(re.findall(r'"(tritonpy_router_\w+)"', text))
    return names | router | {name + end for name in router for end in ("_total", "_bucket", "_count")}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_rules_and_dashboard_ask_for_what_is_exported_or_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}

    asked = set().union(*map(metric_names, [rule["expr"] for rule in rules()]))
    shown = set().union(*map(metric_names, expressions(DASHBOARD)))

    assert asked - exported() - recorded == set()
    assert shown - exported() - recorded == set()
    assert len(asked) > 5
    assert "pod:tritonpy_queue_ms:max" in shown


def test_autoscalers_ask_for_what_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    text = (CHART / "templates/autoscaling.yaml").read_text()
    adapter = (DEPLOY / "prometheus/adapter-values.yaml").read_text()

    assert set(re.findall(r"\bpod:\w+:\w+", text + adapter)) <= recorded
    assert re.findall(r"metric: \{name: (\w+)\}", text) == re.findall(r"as: (\w+)", adapter)


def test_panels_of_the_dashboard_have_ids_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert all(panel["type"] == "row" or panel["targets"] for panel in panels)


def series_of_the_test_of_rules() -> dict[str, set[str]]:
    """The names of series in the test of the rules, with the labels that they have there."""
    text = Path(__file__).with_name("rules_test.yaml").read_text()
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"- series: (\w+)\{(.*)\}", text):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_the_series_that_rules_are_tested_with_are_those_of_a_server(tmp_path: Path) -> None:
    """With their labels; Prometheus adds namespace and pod."""
    repository = ModelRepository(tmp_path)
    tensors = {"data_type": "TYPE_FP32", "dims": [-1]}
    sides = {"input": [{"name": "INPUT0", **tensors}], "output": [{"name": "OUTPUT0", **tensors}]}
    repository.model("echo", {"backend": "identity", **sides})
    with Server(local_options(repository.path)) as server:
        url = f"http://127.0.0.1:{server.metrics_port}/metrics"
        page = urllib.request.urlopen(url, timeout=DEADLINE_S).read().decode()
    exported = {
        sample.name.removesuffix("_total"): set(sample.labels)  # which the parser adds to counters
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    of_servers = {
        name: labels
        for name, labels in series_of_the_test_of_rules().items()
        if not name.startswith("tritonpy_router_")
    }

    assert len(of_servers) >= 5
    for name, labels in of_servers.items():
        if name != "tritonpy_worker_restarts_total":  # of models with workers only
            assert labels - {"namespace", "pod"} == exported[name], name
