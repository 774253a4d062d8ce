"""Every hook a plugin may implement, and the contract of each: this file is the extension manual.

A plugin is a module (or any object) whose functions are marked with `@hookimpl`; there is nothing to
subclass. It is found through an entry point in the group of its kind, and the entry point's name is the name
people write in their configuration. A function may leave out arguments it does not need. Names are those of
Triton's C API in snake case.

What holds for all hooks:

* A hook that raises fails the thing it was called for (a request, a model, a backend) and nothing else. Raise
  a `TritonError` to choose the code; any other exception becomes INTERNAL with its type and text.
* Objects handed in belong to the server; their `state` attribute belongs to the plugin.
* Hooks of one model all run in the process where its instances run: the server's own for `thread`
  execution, a worker for `process`. Loading hooks run on a loading thread and may block. Hooks of a
  batching strategy run on the server's loop and must be quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pluggy

if TYPE_CHECKING:  # `corectl --help` asks plugins for commands, and must not wait for numpy
    import os
    from collections.abc import Awaitable, Iterable, Sequence

    import click

    from tritonpy.dataplane import Frontend
    from tritonpy.handles import (
        Backend,
        BackendAttributes,
        Batch,
        Batcher,
        Cache,
        CacheUsage,
        JsonObject,
        Model,
        ModelInstance,
        RepoAgent,
        RepoAgentModel,
        WorkerCommand,
    )
    from tritonpy.ipc.channel import WorkerChannel
    from tritonpy.request import InferRequest
    from tritonpy.response import InferResponse
    from tritonpy.store import Store, StoreOptions

PROJECT_NAME = "tritonpy"

API_VERSION = (1, 1)
"""The version of the plugin interface: hooks, and what `tritonpy.plugin` has.

The second number counts up when something is added, the first when something is taken away or changed. A
plugin may say which one it was written for, `TRITONPY_API_VERSION = (1, 0)`; it is loaded when the first
numbers are the same and the server's second one is not smaller.
"""

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Marks a function or method as the implementation of the hook of the same name."""


class BackendHooks:
    """Group `tritonpy.backends`: runs models of one framework. Mirrors TRITONBACKEND.

    Order: `backend_attributes`, `backend_initialize`; per model version `model_auto_complete_config`,
    `model_initialize`; per instance `model_instance_initialize`, then `model_instance_execute` any number
    of times; then `model_instance_finalize`, `model_finalize`, `backend_finalize`. Only
    `model_instance_execute` is required. A finalize hook is called exactly when its initialize succeeded.
    """

    @hookspec(firstresult=True)
    def backend_initialize(self, backend: Backend) -> None:
        """Import the framework and set `backend.state`; once per process, before the first model.

        On a loading thread; may block. An exception makes every model of this backend UNAVAILABLE with the
        exception's text; say there which command installs what is missing.
        """

    @hookspec(firstresult=True)
    def backend_finalize(self, backend: Backend) -> None:
        """Free what `backend_initialize` made; after the last model of the backend is gone.

        Exceptions are logged.
        """

    @hookspec(firstresult=True)
    def backend_attributes(self, backend: Backend) -> BackendAttributes:
        """Say how instances run; in the server's process, on a loading thread, before `backend_initialize`.

        Must not import the framework: isolated backends never load it in the server. May block, to ask a
        process of its own for example; it is asked once for all models.
        """

    @hookspec(firstresult=True)
    def model_execution(self, model: Model) -> Literal["thread", "process"] | None:
        """Optional: say how the instances of this model run, where that differs from model to model.

        None leaves it to `backend_attributes`. Asked once per load, in the server's process on a loading
        thread, before the configuration is completed; it may read the model's files. The parameter
        `TRITONPY_ISOLATION` and `--debug-model` decide over it, and then it is not asked.

        Must not import the framework, and comes before `backend_initialize`: a server whose models all run
        in workers never loads the framework itself. An exception makes this version UNAVAILABLE.
        """

    @hookspec(firstresult=True)
    def worker_command(self, model: Model) -> WorkerCommand | Sequence[str] | None:
        """The program to exec for the workers of this model, when it runs in processes.

        Default (None): the server's interpreter running this plugin's hooks; `WorkerCommand.of_hooks` is
        another one that does. A backend that names its own program speaks the frames of `tritonpy.ipc` on the
        descriptors in the environment variables `TRITONPY_CHANNEL_FD` and `TRITONPY_SEGMENT_FD`, and
        implements no other model hook. Where the program needs other environment variables than the server
        has, return a `WorkerCommand`.

        Asked once per load, in the server's process on a loading thread, before the configuration is
        completed. May take as long as it needs, to unpack an environment for example: the time a worker has
        to answer begins when it is started. An exception makes this version UNAVAILABLE.
        """

    @hookspec(firstresult=True)
    def worker_serve(self, model: Model, channel: WorkerChannel) -> None:
        """Be the worker of this model on a thread of the server, instead of a process of its own.

        For backends with a `worker_command`, when a model asks for `TRITONPY_ISOLATION: thread` or is being
        debugged. Serve the channel as that program does, and return when it closes. What several models would
        share in one process, such as module globals, is this hook's to keep apart.
        """

    @hookspec(firstresult=True)
    def model_auto_complete_config(self, model: Model) -> JsonObject | None:
        """Fill in what the configuration leaves out, from the model's files.

        Returns the changed configuration, in the shape of `model.config`, or None to leave it. What may
        change: `max_batch_size`, `input`, `output`, the scheduling choice if none was set,
        `model_transaction_policy`. Called before `model_initialize` unless auto-complete is disabled.
        """

    @hookspec(firstresult=True)
    def model_initialize(self, model: Model) -> None:
        """Check the configuration and load what all instances share; once per model version.

        On a loading thread. An exception makes this version UNAVAILABLE.
        """

    @hookspec(firstresult=True)
    def model_finalize(self, model: Model) -> None:
        """Free what `model_initialize` made; no instance is left. Exceptions are logged."""

    @hookspec(firstresult=True)
    def model_instance_initialize(self, instance: ModelInstance) -> None:
        """Make ready to execute; on the thread that will execute, one instance after the other.

        A backend whose executions need no interpreter may set `instance.executor`, and has them executed by
        that where the instance is a thread of the server; in a worker, `instance.frame_executor`. See
        `Executor` and `FrameExecutor`. An exception makes the model version UNAVAILABLE.
        """

    @hookspec(firstresult=True)
    def model_instance_finalize(self, instance: ModelInstance) -> None:
        """Free what the instance holds; on its thread, after its last execution. Exceptions are logged."""

    @hookspec(firstresult=True)
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> Sequence[InferResponse] | Awaitable[Sequence[InferResponse] | None] | None:
        """Run one batch; on the instance's thread, never twice at the same time for one instance.

        Returns one response per request, in order; all cross back to the loop at once. Or None: then every
        request must be answered through `request.respond(…)`, now or later from any thread, with `final`
        exactly once; a request that is garbage-collected without is answered INTERNAL. May be `async def`.
        The instance is free for the next batch when this returns. An instance in the server that has an
        executor is not called; one in a worker is called with what its frame executor leaves.

        Among the inputs of a request are the controls and states of its sequence; a state that a response
        has among its outputs is kept for the next request. `plugin.BatchPlan` puts the tensors of a batch
        together and its outputs apart.

        The sum of the requests' `batch_size` never exceeds `max_batch_size`. Input tensors are views of
        received bytes: do not write to them. Arrays given to a response are not copied: do not write to
        them afterwards. An exception answers every unanswered request of the batch.
        """

    @hookspec(firstresult=True)
    def model_instance_ready(self, instance: ModelInstance) -> bool:
        """True if the instance can serve; asked by readiness probes, so answer from memory.

        Called while the instance executes nothing: a busy one counts as ready. False, an exception and five
        seconds of silence all mean that it is not.
        """

    # The five batching hooks may also be implemented by a backend: they then apply to all its models.


class BatchingHooks:
    """Group `tritonpy.batching`: decides which requests go together. Mirrors TRITONBACKEND_ModelBatch*.

    The first five are required. A strategy narrows what the dynamic batcher would do: `max_batch_size`,
    shapes, preferred sizes and the queue delay still hold, and a "no" closes the batch. A request refused
    for an empty batch runs alone. All hooks but the first and the last run on the loop: be quick (a scan
    over 1 ms is named in the log and in a metric).
    """

    @hookspec(firstresult=True)
    def model_batcher_initialize(self, model: Model) -> object:
        """Read the model's parameters once, at load; the value returned becomes `batcher.state`.

        On a loading thread. An exception fails the load; its text reaches the log and the client.
        """

    @hookspec(firstresult=True)
    def model_batcher_finalize(self, batcher: Batcher) -> None:
        """The model is being unloaded, or loading failed after `model_batcher_initialize`."""

    @hookspec(firstresult=True)
    def model_batch_initialize(self, batcher: Batcher) -> object:
        """A new attempt to form a batch begins; the value returned becomes `batch.state`.

        Called when there is a request to ask about. The attempt then grows as requests come, and is begun
        anew, often for the same requests, when one of them leaves the queue or is overtaken. An exception
        fails the request at the head of the queue, once; the attempt for those behind it asks again.
        """

    @hookspec(firstresult=True)
    def model_batch_include_request(self, request: InferRequest, batch: Batch) -> bool:
        """True if the request may join the batch; False closes the batch.

        Each request is asked once per attempt, in queue order, after the batcher's own checks passed. An
        exception fails that request, once, and closes the batch.
        """

    @hookspec(firstresult=True)
    def model_batch_finalize(self, batch: Batch) -> None:
        """The attempt is over: the batch left, or will be tried again. Exceptions are logged.

        Called exactly when `model_batch_initialize` succeeded, before any request of the batch is released.
        """

    @hookspec(firstresult=True)
    def model_batch_include_requests(
        self, batch: Batch, requests: Sequence[InferRequest]
    ) -> int | tuple[int, Exception]:
        """Optional: answer for a whole run at once; the length of the head that may join.

        `requests` passed the batcher's own checks, in queue order. Stands in for one
        `model_batch_include_request` each and must give the same answers. To fail one of them as an exception
        of that hook does, return a pair: how many join before it, and its exception; it fails once, and
        closes the batch. After an exception each request is asked alone, so `batch.state` must then be as it
        was before.
        """

    @hookspec(firstresult=True)
    def model_batcher_admit_request(self, batcher: Batcher, request: InferRequest) -> object:
        """Optional: note what is needed of a request; the value returned becomes `request.batching_state`.

        Called once for each request when it has entered the queue, before any attempt includes it, so that a
        strategy need not read the same inputs for each scan. It is released when the request leaves the
        queue, after the attempt that it was part of is finalised. An exception fails that request alone.
        """

    @hookspec(firstresult=True)
    def model_batch_padded_size(self, batch: Batch, size: int) -> int:
        """Optional: how many rows a batch is executed with, for models that execute certain sizes only.

        Asked once for a batch of `size` rows that is about to leave. It is filled up to the number returned,
        and no further than `max_batch_size`, with null requests of one row each: they carry a row of the
        batch, the backend executes them like others, and what it answers to them is dropped. `size`, or
        less, adds none. After an exception the batch leaves as it is, and the log says why.
        """


class RepoAgentHooks:
    """Group `tritonpy.repo_agents`: acts on a model's files around load and unload. Mirrors TRITONREPOAGENT.

    Order: `repo_agent_initialize`; per load of a model that names the agent `repo_agent_model_initialize`,
    `repo_agent_model_action` for each action, `repo_agent_model_finalize`; then `repo_agent_finalize`. Only
    `repo_agent_model_action` is required. A finalize hook is called exactly when its initialize succeeded.

    All hooks run in the server's process on threads of their own: those of one load one after the other,
    those of several models at the same time. They may block; the server goes on, and requests are answered.
    LOAD may take as long as it needs. The other actions are given 15 seconds: then an unload,
    a reload or the end of the server goes on without them.
    """

    @hookspec(firstresult=True)
    def repo_agent_initialize(self, agent: RepoAgent) -> None:
        """Once, before the first model that names the agent; set `agent.state`.

        An exception fails those models; the next load tries again.
        """

    @hookspec(firstresult=True)
    def repo_agent_finalize(self, agent: RepoAgent) -> None:
        """After the last model that names the agent is gone; the next one initialises the agent anew.

        Exceptions are logged.
        """

    @hookspec(firstresult=True)
    def repo_agent_model_initialize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        """A model that names the agent is about to load; check `model.parameters`, set `model.state`.

        An exception fails the load.
        """

    @hookspec(firstresult=True)
    def repo_agent_model_finalize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        """The model is gone, or its load failed; afterwards the directory it acquired is removed.

        Exceptions are logged.
        """

    @hookspec(firstresult=True)
    def repo_agent_model_action(self, agent: RepoAgent, model: RepoAgentModel, action: str) -> None:
        """One step of the model's life.

        Args:
            agent: the agent and its state.
            model: the model. During LOAD its `directory` may be set to a changed copy, best one that
                `model.acquire_directory()` holds: the next agent and the server see that one, and read the
                configuration there, if there is one. Which agents act is never read again.
            action: `LOAD` in configured order, then `LOAD_COMPLETE` or `LOAD_FAIL` in reverse order; after
                `LOAD_COMPLETE`, at last `UNLOAD` in configured order, when the model takes no new requests,
                and `UNLOAD_COMPLETE` in reverse order, when the last one is answered. A reload is a load of
                its own beside what serves; that is unloaded only if the reload succeeds.

        An exception during LOAD stops the load with its text, and this agent and those before it are called
        with `LOAD_FAIL`. In the other actions it is logged.
        """


class CacheHooks:
    """Group `tritonpy.caches`: keeps responses. Mirrors TRITONCACHE. May be `async def`.

    `cache_lookup` and `cache_insert` are required. A server has one cache, chosen by `--cache-config`. What
    an entry says and what a key covers is the server's business: a cache keeps bytes under names, and may
    lose them. Entries are checked when they come back, so one that was damaged or mixed up does no harm.

    Hooks are called on the loop: one that waits for anything but memory must be `async def`. The time that
    `cache_lookup` and `cache_insert` may then wait is bounded (`--cache-timeout-ms`); they are cancelled when
    it is over, and requests go on without the cache. An exception counts as a miss and is logged. A cache
    that fails three times in a row is left alone for a second, and then asked once to see whether it is back.
    """

    @hookspec(firstresult=True)
    def cache_initialize(self, cache: Cache) -> Awaitable[None] | None:
        """Once at the start, before models are loaded: check `cache.settings`, set `cache.state`.

        A cache whose entries other servers can see, or that outlive this one, sets `cache.is_shared`. An
        exception ends the start with its text.
        """

    @hookspec(firstresult=True)
    def cache_finalize(self, cache: Cache) -> Awaitable[None] | None:
        """Once at the end, after the last model is gone. Exceptions are logged."""

    @hookspec(firstresult=True)
    def cache_lookup(
        self, cache: Cache, key: str
    ) -> bytes | memoryview | Awaitable[bytes | memoryview | None] | None:
        """The entry stored under `key`, or None. The request waits for this.

        A view may be of memory of the plugin's own, which does not change while the view lives.
        """

    @hookspec(firstresult=True)
    def cache_insert(self, cache: Cache, key: str, entry: bytes) -> Awaitable[None] | None:
        """Store `entry`; an existing key may keep its value. No request waits for this.

        Raise a `TritonError` to refuse this one entry, because it is too large for example: that is no
        failure of the cache. AlreadyExists is not even logged.
        """

    @hookspec(firstresult=True)
    def cache_usage(self, cache: Cache) -> CacheUsage | None:
        """Optional: how full it is, for the metrics; asked at each scrape, so answer from memory."""


class StoreHooks:
    """Group `tritonpy.stores`: model repositories that are no directories.

    The name of the entry point is a prefix: `--model-repository xyz://place` is opened by the plugin called
    `xyz`. Roots that hold an `@` or a `?` are refused before a plugin sees them, because a root is shown in
    logs and to clients, and what stands there is often a secret.

    The hook makes a `Store`. Its methods are called for as long as the server runs, on threads of their own,
    several at once; a call that hangs holds up the load, or the look at the repository, that made it, and
    nothing else. When the server stops, it calls `Store.stop` and waits for no call any longer. `Store.close`
    follows when the last model is gone; a call that has not ended by then finds its files gone. An exception
    that is no `TritonError` becomes INTERNAL with its type and text, and fails that load or look.

    A store need not have the methods that `Store` is given later.
    """

    @hookspec(firstresult=True)
    def store_open(self, root: str, options: StoreOptions) -> Store:
        """Open the repository `root`; once for each at the start of the server, on a thread; it may block.

        Check the form of the root and read the settings, but ask nothing of the place yet: whether it can be
        reached shows in the first call of the store. An exception ends the start with its text; it must not
        show a secret.
        """

    @hookspec(firstresult=True)
    def store_secret_variables(self) -> Iterable[str]:
        """Optional: names of the variables of the environment that such a store takes its rights from.

        Workers of models do not inherit them unless `--worker-environment` names them. Called once at the
        start of every server in whose environment the plugin is installed, also if no repository is opened by
        it, so do not import anything heavy. An exception is logged, and nothing is left out.
        """


class OpLibraryHooks:
    """Group `tritonpy.op_libraries`: brings libraries of custom operators for models of a framework."""

    @hookspec(firstresult=True)
    def op_library_paths(self, framework: str, model: Model) -> Iterable[str | os.PathLike[str]]:
        """Absolute paths of the libraries that `framework` opens before `model`; none for other models.

        Every installed plugin is asked, once per load of each model of a backend whose attributes name an
        `op_framework`: in the server's process on a loading thread, several at once, before the
        configuration is completed.
        The libraries are opened in the process where the model's instances run, and again in each worker. A
        model with libraries runs in workers unless its configuration says otherwise, so name them for models
        that call the operators only: by the model's configuration, such as a parameter, or by its files.

        Must not import the framework, nor hold the interpreter's lock for long. An exception fails the load,
        and so does a path that is not absolute.

        Args:
            framework: `tensorflow` or `pytorch`.
            model: it is read, and not changed.
        """


class LoaderHooks:
    """Group `tritonpy.loaders`: opens shared objects compiled for Triton.

    Such are files beside models and in directories that options name, and plugins of the four kinds whose
    entry point is the `pathlib.Path` of a file, such as `xyz = "tritonpy_backend_xyz:LIBRARY"`.
    """

    @hookspec(firstresult=True)
    def load_shared_object(self, kind: str, path: str) -> object | None:
        """Open `path` and return an object with the hooks of `kind`, or None when it is not for this loader.

        Args:
            kind: `batching`, `backends`, `repo_agents` or `caches`.
            path: absolute path of the library.

        Blocking, on a loading thread. An exception fails what asked for the library.
        """


class FrontendHooks:
    """Group `tritonpy.frontends`: a way in. HTTP, gRPC and the metrics port are frontends, too.

    Order: `frontend_initialize` before models are loaded, `frontend_start` when they are, `frontend_stop` at
    the end. Only `frontend_start` is required. `frontend_stop` is called exactly when `frontend_start`
    succeeded, so a start that fails or is cancelled takes back what it has begun.

    An installed frontend is started when `--frontend-config` names it; one that a program gives to its
    `Server` always is. gRPC, HTTP and metrics are started first, in this order, then the others by name.

    Hooks run on the loop and must not block it. All of them may be `async def`.
    """

    @hookspec(firstresult=True)
    def frontend_initialize(self, frontend: Frontend) -> Awaitable[None] | None:
        """Optional: check `frontend.settings`, set `frontend.addresses` and `frontend.state`.

        Nothing is listened on yet. The server sees to it that the addresses can be had. An exception ends the
        start with its text, before models take their time to load.
        """

    @hookspec(firstresult=True)
    def frontend_start(self, frontend: Frontend) -> Awaitable[None] | None:
        """Begin to accept requests, and set `frontend.addresses` where the system has chosen a port.

        An exception ends the start of the server with its text.
        """

    @hookspec(firstresult=True)
    def frontend_stop(self, frontend: Frontend) -> Awaitable[None] | None:
        """Refuse new requests, `await frontend.drained()`, send the last answers and close.

        The hooks of all frontends run side by side. What is done before the first `await` is done before the
        server waits for requests under way, for `frontend.left_s` seconds. A hook that takes ten seconds
        longer is cancelled; that and exceptions are logged.
        """


class CliHooks:
    """Group `tritonpy.cli`: adds commands to `corectl`."""

    @hookspec
    def cli_commands(self, group: click.Group) -> None:
        """Add commands to the group; import the rest inside them, since this runs at every start."""
