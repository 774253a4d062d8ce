"""What pages of metrics of servers and routers say."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tritonpy_ray.looks import Load

_PAGE_S = 2.0


def load_of(page: str) -> Load:
    """What a server's page of metrics says of its load; versions of a model count together.

    Raises:
        ValueError: it is no page of metrics.
    """
    requests: dict[str, float] = {}
    queue_us: dict[str, float] = {}
    pending = 0.0
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            model = sample.labels.get("model", "")
            match sample.name.removesuffix("_total"):
                case "nv_inference_request_success":
                    requests[model] = requests.get(model, 0.0) + sample.value
                case "nv_inference_queue_duration_us":
                    queue_us[model] = queue_us.get(model, 0.0) + sample.value
                case "nv_inference_pending_request_count":
                    pending += sample.value
    return Load(requests, queue_us, pending)


def replicas_of(page: str) -> dict[str, bool]:
    """The replicas of which a router's page of metrics tells, and whether each gets requests.

    Raises:
        ValueError: it is no page of metrics.
    """
    return {
        sample.labels["replica"]: bool(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "tritonpy_router_replica_up"
    }


def read_page(host: str, port: int) -> str:
    """The page of metrics of a process on this node.

    Raises:
        OSError: it cannot be had.
    """
    address = f"[{host}]" if ":" in host else host
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}:{port}/metrics", timeout=_PAGE_S) as answer:
        text: bytes = answer.read()
        return text.decode()
