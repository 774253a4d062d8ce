"""The table of routes: every path of the inference port, with its call."""

from __future__ import annotations

from tritonpy.dataplane import Dataplane
from tritonpy.flow import flow_limits
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.extensions import (
    SharedMemoryCalls,
    TraceCalls,
    change_log_settings,
    show_log_settings,
)
from tritonpy.frontends.http.generation import Generation
from tritonpy.frontends.http.health import HealthChecks, VersionOne
from tritonpy.frontends.http.inference import Inference
from tritonpy.frontends.http.repository import RepositoryCalls
from tritonpy.frontends.http.router import Route, get, post
from tritonpy.frontends.restriction import guards
from tritonpy.frontends.services import FrontendServices
from tritonpy.frontends.trace_settings import TraceSettings
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions

MODEL = "/v2/models/{model}[/versions/{version}]"
REPOSITORY = "/v2/repository[/{repository}]"
SYSTEM_MEMORY = "/v2/systemsharedmemory[/region/{region}]"
CUDA_MEMORY = "/v2/cudasharedmemory[/region/{region}]"


def make_routes(
    dataplane: Dataplane, services: FrontendServices, options: ServerOptions, codec: JsonCodec
) -> list[Route]:
    """Every route of the inference port; of two patterns that fit a path the first is taken.

    Args:
        dataplane: what requests are answered with.
        services: what HTTP shares with other frontends.
        options: of the server.
        codec: reads and writes JSON that is large.
    """
    inference = Inference(dataplane, services, options.http_max_input_byte_size, codec)
    generation = Generation(
        dataplane, services.model_metrics, services.tracing, codec, flow_limits=flow_limits(options)
    )

    def config(name: str, version: str) -> JsonObject:
        return dataplane.find(name, version).config

    restricted = guards(options.http_restricted_apis)
    health = HealthChecks(dataplane, restricted)
    repository = RepositoryCalls(dataplane)
    memory = SharedMemoryCalls(services.regions)
    traces = TraceCalls(TraceSettings(dataplane, services.tracing))
    routes = [
        Route(b"POST", f"{MODEL}/infer", "inference", inference.infer),
        Route(b"POST", f"{MODEL}/generate", "inference", generation.generate),
        Route(b"POST", f"{MODEL}/generate_stream", "inference", generation.generate_stream),
        Route(b"GET", "/v2/health/live", "health", health.live),
        Route(b"GET", "/v2/health/ready", "health", health.ready),
        Route(b"GET", f"{MODEL}/ready", "health", health.model_ready),
        get("/v2", "metadata", dataplane.server_metadata),
        get("/v2/models/stats", "statistics", dataplane.model_statistics),
        get(MODEL, "metadata", dataplane.model_metadata),
        get(f"{MODEL}/stats", "statistics", dataplane.model_statistics),
        get(f"{MODEL}/explain", "statistics", dataplane.model_explanation),
        get(f"{MODEL}/config", "model-config", config),
        get("/v2/logging", "logging", show_log_settings),
        post("/v2/logging", "logging", change_log_settings),
        get("/v2/trace/setting", "trace", traces.show),
        post("/v2/trace/setting", "trace", traces.change),
        get("/v2/models/{model}/trace/setting", "trace", traces.show),
        post("/v2/models/{model}/trace/setting", "trace", traces.change),
        post(f"{REPOSITORY}/index", "model-repository", repository.index),
        post(f"{REPOSITORY}/models/{{model}}/load", "model-repository", repository.load, takes_large=True),
        post(f"{REPOSITORY}/models/{{model}}/unload", "model-repository", repository.unload),
        get(f"{SYSTEM_MEMORY}/status", "shared-memory", memory.system_status),
        post(f"{SYSTEM_MEMORY}/register", "shared-memory", memory.register_system),
        post(f"{SYSTEM_MEMORY}/unregister", "shared-memory", memory.unregister_system),
        get(f"{CUDA_MEMORY}/status", "shared-memory", memory.cuda_status),
        post(f"{CUDA_MEMORY}/register", "shared-memory", memory.register_cuda),
        post(f"{CUDA_MEMORY}/unregister", "shared-memory", memory.unregister_cuda),
    ]
    if options.allow_trtis_v1:
        routes += _version_one_routes(VersionOne(dataplane, restricted))
    return routes


def _version_one_routes(version_one: VersionOne) -> list[Route]:
    return [
        Route(b"GET", "/api/health/live", "health", version_one.live),
        Route(b"GET", "/api/health/ready", "health", version_one.ready),
        Route(b"GET", "/api/status[/{model}]", "metadata", version_one.status),
    ]
