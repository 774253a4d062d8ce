"""Python models and plugins without a server, conformance suites; needs the extra `tritonpy-sdk[testing]`."""

import pytest

# Before the modules below are imported: a failed assertion then shows the values it compared.
pytest.register_assert_rewrite(
    *(
        f"tritonpy_sdk.testing.{name}"
        for name in ("batch_sizes", "conformance", "driver", "outputs", "served")
    )
)

from tritonpy_sdk.testing.batch_sizes import BatchSizeStrictness  # noqa: E402
from tritonpy_sdk.testing.cache import OpenCache, open_cache  # noqa: E402
from tritonpy_sdk.testing.cache_conformance import CacheConformance  # noqa: E402
from tritonpy_sdk.testing.conformance import BackendConformance  # noqa: E402
from tritonpy_sdk.testing.driver import Answer, BackendDriver, DrivenModel  # noqa: E402
from tritonpy_sdk.testing.frontend_conformance import FrontendConformance  # noqa: E402
from tritonpy_sdk.testing.op_libraries import ask_op_libraries  # noqa: E402
from tritonpy_sdk.testing.op_library_conformance import OpLibraryConformance  # noqa: E402
from tritonpy_sdk.testing.patience import DEADLINE_S, until, until_async  # noqa: E402
from tritonpy_sdk.testing.python_model import (  # noqa: E402
    ModelRequest,
    ModelWarning,
    Outputs,
    PythonModel,
    ResponseStream,
    load_python_model,
)
from tritonpy_sdk.testing.repo_agent import AgentLoad, load_with_agent  # noqa: E402
from tritonpy_sdk.testing.repo_agent_conformance import RepoAgentConformance  # noqa: E402
from tritonpy_sdk.testing.requests import ask, request_of  # noqa: E402
from tritonpy_sdk.testing.rules import PluginFault  # noqa: E402
from tritonpy_sdk.testing.server_process import ServerProcess  # noqa: E402
from tritonpy_sdk.testing.shared_objects import (  # noqa: E402
    SharedObjects,
    compile_shared_object,
    find_compiler,
)
from tritonpy_sdk.testing.store_conformance import StoreConformance  # noqa: E402
from tritonpy_sdk.testing.strategy import OpenStrategy, WaitingRequest, open_strategy  # noqa: E402
from tritonpy_sdk.testing.strategy_conformance import StrategyConformance  # noqa: E402

__all__ = [
    "DEADLINE_S",
    "AgentLoad",
    "Answer",
    "BackendConformance",
    "BackendDriver",
    "BatchSizeStrictness",
    "CacheConformance",
    "DrivenModel",
    "FrontendConformance",
    "ModelRequest",
    "ModelWarning",
    "OpLibraryConformance",
    "OpenCache",
    "OpenStrategy",
    "Outputs",
    "PluginFault",
    "PythonModel",
    "RepoAgentConformance",
    "ResponseStream",
    "ServerProcess",
    "SharedObjects",
    "StoreConformance",
    "StrategyConformance",
    "WaitingRequest",
    "ask",
    "ask_op_libraries",
    "compile_shared_object",
    "find_compiler",
    "load_python_model",
    "load_with_agent",
    "open_cache",
    "open_strategy",
    "request_of",
    "until",
    "until_async",
]
