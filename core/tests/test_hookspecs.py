from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pluggy
import pytest
import tritonpy
from tritonpy import plugin
from tritonpy.hookspecs import PROJECT_NAME
from tritonpy.plugin_manager import KINDS

SIGNATURES = {
    "backends": {
        "backend_initialize": ["backend"],
        "backend_finalize": ["backend"],
        "backend_attributes": ["backend"],
        "model_execution": ["model"],
        "worker_command": ["model"],
        "worker_serve": ["model", "channel"],
        "model_auto_complete_config": ["model"],
        "model_initialize": ["model"],
        "model_finalize": ["model"],
        "model_instance_initialize": ["instance"],
        "model_instance_finalize": ["instance"],
        "model_instance_execute": ["instance", "requests"],
        "model_instance_ready": ["instance"],
    },
    "batching": {
        "model_batcher_initialize": ["model"],
        "model_batcher_finalize": ["batcher"],
        "model_batch_initialize": ["batcher"],
        "model_batch_include_request": ["request", "batch"],
        "model_batch_finalize": ["batch"],
        "model_batch_include_requests": ["batch", "requests"],
        "model_batcher_admit_request": ["batcher", "request"],
        "model_batch_padded_size": ["batch", "size"],
    },
    "repo_agents": {
        "repo_agent_initialize": ["agent"],
        "repo_agent_finalize": ["agent"],
        "repo_agent_model_initialize": ["agent", "model"],
        "repo_agent_model_finalize": ["agent", "model"],
        "repo_agent_model_action": ["agent", "model", "action"],
    },
    "caches": {
        "cache_initialize": ["cache"],
        "cache_finalize": ["cache"],
        "cache_lookup": ["cache", "key"],
        "cache_insert": ["cache", "key", "entry"],
        "cache_usage": ["cache"],
    },
    "stores": {"store_open": ["root", "options"], "store_secret_variables": []},
    "op_libraries": {"op_library_paths": ["framework", "model"]},
    "loaders": {"load_shared_object": ["kind", "path"]},
    "frontends": {
        "frontend_initialize": ["frontend"],
        "frontend_start": ["frontend"],
        "frontend_stop": ["frontend"],
    },
    "cli": {"cli_commands": ["group"]},
}
"""What plugins in the world rely on: a hook or an argument may be added here, none may go."""

ASKED_OF_EVERY_PLUGIN = {"cli_commands"}

HOOKS = [(kind, hook) for kind, hooks in SIGNATURES.items() for hook in hooks]


def manager_of(kind: str) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT_NAME)
    manager.add_hookspecs(KINDS[kind])
    return manager


def test_hooks_and_their_arguments_stay_what_plugins_rely_on():
    found = {}
    for kind in KINDS:
        callers = vars(manager_of(kind).hook)
        found[kind] = {name: list(caller.spec.argnames) for name, caller in callers.items()}

    assert found == SIGNATURES


@pytest.mark.parametrize(("kind", "hook"), HOOKS)
def test_every_hook_states_its_contract(kind, hook):
    spec = getattr(KINDS[kind], hook)
    first_line = (inspect.getdoc(spec) or "").splitlines()[0]

    assert first_line.endswith((".", ":"))
    assert inspect.signature(spec).return_annotation is not inspect.Signature.empty


def test_every_hook_has_a_caller_in_the_server():
    """It is bound by its name, so the name stands as a string in some module; docstrings do not count."""
    source = Path(tritonpy.__file__).parent
    words: set[object] = set()
    for path in source.rglob("*.py"):
        words |= {
            node.value for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant)
        }

    assert {hook for _, hook in HOOKS} - words == set()


@pytest.mark.parametrize(("kind", "hook"), HOOKS)
def test_hooks_with_one_owner_answer_bare(kind, hook):
    caller = getattr(manager_of(kind).hook, hook)

    assert bool(caller.spec.opts["firstresult"]) is (hook not in ASKED_OF_EVERY_PLUGIN)


@pytest.mark.parametrize(
    "name",
    [
        "hookimpl",
        "Model",
        "ModelInstance",
        "InferRequest",
        "InferResponse",
        "Tensor",
        "TritonError",
        "Backend",
        "BackendAttributes",
        "Batch",
        "Batcher",
        "RepoAgent",
        "RepoAgentModel",
        "Cache",
        "Address",
        "Admission",
        "Frontend",
        "Store",
        "StoreOptions",
        "WorkerCommand",
        "OpLibrary",
    ],
)
def test_the_door_for_plugins_offers_what_the_hooks_mention(name):
    assert hasattr(plugin, name)
    assert name in plugin.__all__


def test_the_door_offers_everything_it_lists():
    assert [name for name in plugin.__all__ if not hasattr(plugin, name)] == []
