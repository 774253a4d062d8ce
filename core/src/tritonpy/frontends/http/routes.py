"""Which path does what: the whole table."""

from __future__ import annotations

from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.http.generation import Generation
from tritonpy.frontends.http.health import HealthChecks
from tritonpy.frontends.http.inference import Inference
from tritonpy.frontends.http.logging import change_log_settings, show_log_settings
from tritonpy.frontends.http.repository import RepositoryCalls
from tritonpy.frontends.http.routing import Route, get, post
from tritonpy.frontends.http.settings import HttpSettings
from tritonpy.frontends.http.trtis import VersionOne
from tritonpy.frontends.restriction import guards
from tritonpy.frontends.services import FrontendServices

MODEL = "/v2/models/{model}[/versions/{version}]"
REPOSITORY = "/v2/repository[/{repository}]"


def make_routes(dataplane: Dataplane, services: FrontendServices, settings: HttpSettings) -> list[Route]:
    """Every route of the inference port; of two patterns that fit a path the first is taken.

    Args:
        dataplane: what requests are answered with.
        services: what HTTP shares with other frontends.
        settings: of the HTTP port.
    """
    inference = Inference(dataplane)
    generation = Generation(dataplane, services.model_metrics, max_held_byte_size=settings.max_held_byte_size)
    health = HealthChecks(dataplane)
    repository = RepositoryCalls(dataplane)
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
        get(f"{MODEL}/config", "model-config", dataplane.model_config),
        get("/v2/logging", "logging", show_log_settings),
        post("/v2/logging", "logging", change_log_settings),
        post(f"{REPOSITORY}/index", "model-repository", repository.index),
        post(f"{REPOSITORY}/models/{{model}}/load", "model-repository", repository.load),
        post(f"{REPOSITORY}/models/{{model}}/unload", "model-repository", repository.unload),
    ]
    return routes + _version_one_routes(dataplane, settings) if settings.allow_v1 else routes


def _version_one_routes(dataplane: Dataplane, settings: HttpSettings) -> list[Route]:
    version_one = VersionOne(dataplane, guards(settings.restrictions))
    return [
        Route(b"GET", "/api/health/live", "health", version_one.live),
        Route(b"GET", "/api/health/ready", "health", version_one.ready),
        Route(b"GET", "/api/status[/{model}]", "metadata", version_one.status),
    ]
