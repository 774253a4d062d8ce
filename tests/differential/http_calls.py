"""HTTP requests that are not inference: paths, metadata, configuration, statistics, repository, logging."""

from __future__ import annotations

from .bodies import body, http_case, infer, tensor
from .servers import AtRest, Http

GOOD = body(tensor())


def _get(path: str, method: str = "GET", document: bytes = b"") -> Http:
    return Http(method, path, document)


def _post(path: str, document: bytes = b"") -> Http:
    return Http("POST", path, document)


_MODELS = (
    *("nob", "fix", "types", "one_string", "strings", "variable", "vector", "optional", "labelled"),
    *("reversed", "fails", "streams", "told", "counted"),
)
_PATHS = (
    *("/v2", "/v2/", "/v2?a=b", "//v2", "/v2//health/live", "/", "/v1", "/v3", "/v2x", "/V2", "/metrics"),
    *("/v2/health", "/v2/health/", "/v2/health/live", "/v2/health/ready", "/v2/health/live/", "/v2/health/x"),
    *("/v2/health/live?x=%00", "/v2/models", "/v2/models/", "/v2/models//ready", "/v2/models/n%6fb"),
    *("/v2/models/nob/", "/v2/models/nob/x", "/v2/models/nob/versions", "/v2/models/nob/versions/"),
    *("/v2/models/nob/versions/1", "/v2/models/nob/versions/01", "/v2/models/nob/versions/1/"),
    *("/v2/models/nob/versions/x", "/v2/models/nob/versions/-1", "/v2/models/nob/versions/0"),
    *("/v2/models/nob/versions/9", "/v2/models/nob/versions/99999999999999999999", "/v2/models/nope"),
    *("/v2/models/nob/ready", "/v2/models/nob/versions/1/ready", "/v2/models/nob/versions/9/ready"),
    *("/v2/models/nope/ready", "/v2/models/nope/versions/1/ready", "/v2/models/nob/ready/"),
    *(
        "/v2/models/nob/versions/99999999999999999999/ready",
        "/v2/models/nope/config",
        "/v2/models/nope/stats",
    ),
    *(
        "/v2/models/nob/versions/9/config",
        "/v2/models/nob/versions/9/stats",
        "/v2/models/nob/versions/1/config",
    ),
    *("/v2/models/nob/versions/x/config", "/v2/models/nob/config/", "/v2/models/stats/"),
    *(
        "/v2/models/%C3%A4",
        "/v2/models/nob/infer",
        "/v2/models/nob/generate",
        "/v2/models/nob/generate_stream",
    ),
    *("/v2/repository", "/v2/repository/index", "/v2/repository/models/nob/load", "/v2/repository/x"),
    *("/v2/models/stats/versions/1", "/v2/models/nob/versions/1/versions/1", "/v2/models/nob/infer/x"),
    *("/v2/logging/", "/v2/systemsharedmemory", "/v2/systemsharedmemory/", "/v2/systemsharedmemory/status/"),
    *(
        "/v2/systemsharedmemory/region/status",
        "/v2/systemsharedmemory/region//status",
        "/v2/cudasharedmemory",
    ),
    *("/v2/models/nob/trace", "/v2/trace", "/api/status", "/v2/models/nob/versions/1/trace/setting"),
)
_METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
_FIXED = (
    *("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/nob", "/v2/models/nob/ready"),
    *("/v2/models/nob/config", "/v2/models/nob/stats", "/v2/models/stats", "/v2/nothing"),
    *("/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status"),
    *("/v2/trace/setting", "/v2/models/nob/trace/setting"),
)
_INDEX_BODIES = (
    *(b"", b"{}", b'{"ready": true}', b'{"ready": false}', b'{"ready": 1}', b'{"ready": null}', b"[]", b"x"),
    *(b'{"other": 1}', b'"text"', b'{"ready": "true"}', b'{"ready": true} x', b"null"),
)
_LOAD_BODIES = (
    *(b"x", b"[]", b'{"parameters": 5}', b'{"parameters": []}', b'{"parameters": {"config": 5}}'),
    *(b'{"parameters": {"config": "x"}}', b'{"parameters": {"config": "[]"}}', b'{"parameters": null}'),
    *(
        b'{"parameters": {"other": "x"}}',
        b'{"parameters": {"config": null}}',
        b'{"parameters": {"config": {}}}',
    ),
    *(b'{"parameters": {"file:1/model.py": "YQ=="}}', b'{"parameters": {"file:1/model.py": 5}}'),
    b'{"parameters": {"config": "{\\"backend\\": \\"python\\", \\"nonsense\\": 1}"}}',
    b'{"parameters": {"config": "{\\"max_batch_size\\": -1}"}}',
)
_UNLOAD_BODIES = (b"x", b"[]", b'{"parameters": {"unload_dependents": 5}}', b'{"parameters": 5}', b"")
_LOG_BODIES = (
    *(b"", b"x", b"[]", b"null", b"5", b"{}", b'{"other": 1}', b'{"log_info": 1}', b'{"log_info": "true"}'),
    *(b'{"log_info": null}', b'{"log_warning": []}', b'{"log_error": {}}', b'{"log_verbose_level": "1"}'),
    *(b'{"log_verbose_level": -1}', b'{"log_verbose_level": 1.5}', b'{"log_verbose_level": 4294967296}'),
    *(b'{"log_verbose_level": true}', b'{"log_format": 5}', b'{"log_format": "x"}', b'{"log_format": ""}'),
    *(b'{"log_file": "/tmp/x"}', b'{"log_file": ""}', b'{"log_file": 5}', b'{"log_format": "json"}'),
    *(b'{"log_format": "ISO8601"}', b'{"log_format": "default"}', b'{"log_info": true}'),
    *(b'{"log_verbose_level": 1}', b'{"log_verbose_level": 0}', b'{"log_warning": false, "log_file": "x"}'),
    *(b'{"log_warning": true, "log_error": true}', b'{"log_info": true, "log_info": false}'),
    b'{"log_info": true, "log_verbose_level": 0, "log_format": "default"}',
)

_TRACE_BODIES = (
    *(b"", b"x", b"[]", b"null", b"5", b"{}", b'{"other": 1}', b'{"trace_rate": 5}', b'{"trace_rate": "x"}'),
    *(b'{"trace_rate": ""}', b'{"trace_rate": "5"}', b'{"trace_rate": "4294967296"}', b'{"trace_rate": "0"}'),
    *(b'{"trace_count": "-2"}', b'{"trace_count": "2147483648"}', b'{"trace_count": []}'),
    *(b'{"log_frequency": "x"}', b'{"log_frequency": "7"}', b'{"trace_level": "OFF"}'),
    *(b'{"trace_level": ["OFF"]}', b'{"trace_level": ["x"]}', b'{"trace_level": [1]}'),
    *(b'{"trace_level": ["TIMESTAMPS"]}', b'{"trace_level": ["OFF", "TENSORS"]}', b'{"trace_level": {}}'),
    *(b'{"trace_file": "x"}', b'{"trace_file": null}', b'{"trace_mode": "opentelemetry"}'),
    b'{"trace_level": null, "trace_rate": null, "trace_count": null, "log_frequency": null}',
)

CASES = [
    *(http_case(f"GET {path}", _get(path)) for path in _PATHS),
    *(http_case(f"{method} {path}", _get(path, method)) for path in _FIXED for method in _METHODS),
    *(
        http_case(f"{method} {path}", _get(path, method))
        for method in ("PUT", "HEAD", "OPTIONS", "DELETE")
        for path in ("/v2/models/nob/infer", "/v2/repository/index", "/v2/repository/models/nob/load")
    ),
    *(http_case(f"metadata of {model}", _get(f"/v2/models/{model}")) for model in _MODELS),
    *(http_case(f"configuration of {model}", _get(f"/v2/models/{model}/config")) for model in _MODELS),
    http_case("statistics of a model that was asked nothing", _get("/v2/models/counted/stats")),
    http_case(
        "statistics after some requests",
        _post("/v2/repository/models/counted/load"),
        infer("counted", body(tensor(shape=[1, 1], data=[1]))),
        infer("counted", body(tensor(shape=[3, 1], data=[1, 2, 3]))),
        infer("counted", body(tensor(shape=[5, 1], data=[1, 2, 3, 4, 5]))),
        infer("counted", body(tensor(shape=[1, 1], data=[1], datatype="INT32"))),
        infer("counted", b"{}"),
        infer("counted", body(tensor(shape=[1, 1], data=[1]), outputs=[{"name": "ZZ"}])),
        AtRest("GET", "/v2/models/counted/stats"),
        AtRest("GET", "/v2/models/counted/versions/1/stats"),
    ),
    *(http_case(f"index with {sent!r}", _post("/v2/repository/index", sent)) for sent in _INDEX_BODIES),
    http_case("index of a repository", _post("/v2/repository/some/index", b"")),
    http_case("index of two repositories", _post("/v2/repository/some/more/index", b"")),
    *(
        http_case(f"load with {sent!r}", _post("/v2/repository/models/counted/load", sent))
        for sent in _LOAD_BODIES
    ),
    http_case("load of an unknown model", _post("/v2/repository/models/nope/load")),
    http_case("load with a version", _post("/v2/repository/models/nob/versions/1/load")),
    http_case("load from a repository", _post("/v2/repository/some/models/nob/load")),
    http_case("unload from a repository", _post("/v2/repository/some/models/nob/unload")),
    http_case("unload of an unknown model", _post("/v2/repository/models/nope/unload")),
    *(
        http_case(
            f"unload of an unknown model with {sent!r}", _post("/v2/repository/models/nope/unload", sent)
        )
        for sent in _UNLOAD_BODIES
    ),
    http_case("something else with a model", _post("/v2/repository/models/nob/reload")),
    http_case("log settings", _get("/v2/logging")),
    *(http_case(f"log settings {sent!r}", _post("/v2/logging", sent)) for sent in _LOG_BODIES),
    http_case("log settings after all", _get("/v2/logging")),
    *(
        http_case(f"trace settings {sent!r} of {path}", _post(f"{path}/trace/setting", sent))
        for path in ("/v2", "/v2/models/nob")
        for sent in _TRACE_BODIES
    ),
    *(
        http_case(f"trace settings of {model}", _get(f"/v2/models/{model}/trace/setting"))
        for model in _MODELS
    ),
]
