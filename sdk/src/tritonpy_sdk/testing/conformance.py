"""The tests that every backend has to pass."""

from __future__ import annotations

import inspect
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tritonpy.handles import BackendAttributes, JsonObject
from tritonpy.request import InferRequest
from tritonpy.tensor import Array

from tritonpy_sdk.testing.driver import Answer, BackendDriver, DrivenModel
from tritonpy_sdk.testing.outputs import check_fits, check_same, frozen
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.samples import build_request, sample_inputs
from tritonpy_sdk.testing.traces import (
    check_no_growth,
    directory_left_alone,
    nothing_printed,
    process_as_it_was,
)

_HOOKS = "reference/hooks.md"
_PAGE = "how-to/write-a-backend.md"


class BackendConformance:
    """Subclass this in a test module and every rule of the backend hooks is tested with your models.

    ```python
    class TestXyz(BackendConformance, backend="xyz", models="tests/models"): ...
    ```

    Class arguments:
        backend: the name of an installed plugin, a plugin object such as a module, or the path of a library.
        models: a model repository: absolute, or relative to the test file's directory or one above it.
        settings: what `--backend-config` would say, as a dict.

    Override `make_inputs` when a model needs more than made-up contents.

    Attributes:
        relative_tolerance, absolute_tolerance: how far floats of a batch may lie from those of its requests
            run alone; frameworks pick other kernels for other sizes.
    """

    relative_tolerance: ClassVar[float] = 1e-4
    absolute_tolerance: ClassVar[float] = 1e-5
    driver: ClassVar[BackendDriver]

    def __init_subclass__(
        cls,
        *,
        backend: str | object = "",
        models: str | Path = "",
        settings: dict[str, str] | None = None,
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        if backend:
            cls.driver = BackendDriver(backend, find_models(models, cls), settings)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test once for each model."""
        if "model_name" in metafunc.fixturenames:
            metafunc.parametrize("model_name", self.driver.model_names)

    def make_inputs(
        self, model_name: str, config: JsonObject, row_count: int, random: np.random.Generator
    ) -> dict[str, Array]:
        """Make one request's inputs; override it where made-up contents will not do.

        Args:
            model_name: as in the repository.
            config: the model's settled configuration.
            row_count: size of the batch dimension, for models that batch.
            random: use it for contents, so that a failure can be repeated.
        """
        return sample_inputs(config, row_count, random)

    # Loading.

    @rule(
        "backend_attributes returns BackendAttributes, before backend_initialize has been called",
        "return BackendAttributes(execution='thread') or 'process', from constants",
        _HOOKS,
    )
    def test_attributes_are_told_before_the_backend_is_initialized(self) -> None:
        attributes: object = self.driver.bound.attributes
        assert isinstance(attributes, BackendAttributes), f"returned {attributes!r}"
        assert attributes.execution in ("thread", "process"), f"has the execution {attributes.execution!r}"

    @rule(
        "model_execution is asked before backend_initialize",
        "decide by model.config and by files; backend.state is not there yet",
        _HOOKS,
    )
    def test_execution_of_a_model_is_told_before_the_backend_is_initialized(self, model_name: str) -> None:
        execution: object = self.driver.bound.execution_of(self.driver.load(model_name).handle)
        assert execution in ("thread", "process"), f"gives the execution {execution!r} to a model"

    @rule(
        "models come and go: one that was unloaded may be loaded again",
        "keep what belongs to a model in model.state, and end nothing else in model_finalize",
        _HOOKS,
    )
    def test_model_loads_again_after_it_was_unloaded(self, model_name: str) -> None:
        for _ in range(2):
            with self.driver.load(model_name) as model:
                assert model.instances, "gave the model no instance"
                self._run_one(model, model_name)

    @rule(
        "model_auto_complete_config fills in what was left out, and changes nothing that was given",
        "begin with model.config, and set only what is missing there",
        _HOOKS,
    )
    def test_auto_complete_keeps_what_was_given(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            given, config = model.given, model.config
            for key in ("name", "backend", "default_model_filename"):
                assert given.get(key) in (config.get(key), "", None), f"changed '{key}'"
            if given["max_batch_size"]:
                assert config["max_batch_size"] == given["max_batch_size"], (
                    f"made max_batch_size {config['max_batch_size']} of {given['max_batch_size']}"
                )
            for key in ("input", "output"):
                for tensor in given[key]:
                    same = [other for other in config[key] if other["name"] == tensor["name"]]
                    assert same, f"dropped {key} '{tensor['name']}'"
                    for part in ("data_type", "dims"):
                        assert _plain(same[0][part]) == _plain(tensor[part]), (
                            f"made {part} {same[0][part]} of {tensor[part]} for {key} '{tensor['name']}'"
                        )

    @rule(
        "the same files and the same configuration are completed the same way",
        "read everything from the model's files: no counter, no clock, no order of a set",
        _HOOKS,
    )
    def test_auto_complete_says_the_same_twice(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            assert model.auto_complete() == model.auto_complete(), (
                "completed a model otherwise the second time"
            )

    @rule(
        "a model that cannot be loaded fails alone, with words for its user",
        "raise InvalidArg with the file that is missing, and end only what this model began",
        _HOOKS,
    )
    def test_model_without_files_leaves_the_others_alone(self, model_name: str) -> None:
        with tempfile.TemporaryDirectory() as empty, self.driver.load(model_name) as model:
            (Path(empty) / str(model.handle.version)).mkdir()
            try:
                with self.driver.load(model_name, alias="without_files", path=Path(empty)):
                    pass  # some backends need no files
            except Exception as exc:
                _check_says_why(exc)
            self._run_one(model, model_name)

    @rule(
        "model_instance_ready returns True or False",
        "end each way through the function with `return True` or `return False`",
        _HOOKS,
    )
    def test_readiness_is_a_truth_value(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            ready: object = model.is_ready()
            assert ready is True, f"answered {ready!r} about an instance that can serve"

    # Answers.

    @rule(
        "every request of a batch gets exactly one final response",
        "return one response per request, in order, or respond to each with final=True once, not both",
        _HOOKS,
    )
    def test_every_request_ends_with_exactly_one_final_response(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            requests = [self._request(model, model_name, rows, seed) for seed, rows in _batch(model)]
            answers = model.execute(requests)

            finals = [answer.final_count for answer in answers]
            assert finals == [1] * len(requests), f"gave {finals} final responses to {len(requests)} requests"
            if not model.handle.is_decoupled:
                counts = [len(answer.responses) for answer in answers]
                assert counts == [1] * len(requests), f"gave {counts} responses to {len(requests)} requests"

    @rule(
        "outputs have the names, datatypes and dims of the configuration, and the rows of their request",
        "convert by .astype, keep the batch dimension, and compare with model.config['output']",
        _PAGE,
    )
    def test_outputs_fit_the_configuration(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            for seed, rows in _batch(model):
                request = self._request(model, model_name, rows, seed)
                (answer,) = model.execute([request])
                for response in answer.responses:
                    check_fits(response, model.config, rows, is_decoupled=model.handle.is_decoupled)

    @rule(
        "what a request gets does not depend on the requests beside it",
        "cut the outputs of the batch at the batch_size of each request, in order: BatchPlan does",
        _PAGE,
    )
    def test_batch_of_many_equals_batches_of_one(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            sizes = _batch(model)
            together = model.execute([self._request(model, model_name, rows, seed) for seed, rows in sizes])
            for (seed, rows), answer in zip(sizes, together, strict=True):
                alone = self._run_one(model, model_name, rows, seed)
                self._check_same(answer, alone)

    @rule(
        "a response has all outputs that its request wants",
        "add every output for which request.wants(name) is true, and compute it as without the wish",
        _PAGE,
    )
    def test_requested_outputs_are_in_the_response(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            full = self._run_one(model, model_name)
            for output in model.config["output"]:
                name = output["name"]
                request = self._request(model, model_name, requested_outputs=(name,))
                (answer,) = model.execute([request])
                for got, expected in zip(answer.responses, full.responses, strict=True):
                    assert got.error is None, got.error
                    kept = [tensor for tensor in got.outputs if tensor.name == name]
                    wanted = [tensor for tensor in expected.outputs if tensor.name == name]
                    assert kept or model.handle.is_decoupled, f"no output '{name}' in {got}"
                    check_same(kept, wanted, self.relative_tolerance, self.absolute_tolerance)

    @rule(
        "each request of a batch has wishes of its own",
        "ask request.wants for each request, not for the first one of the batch",
        _PAGE,
    )
    def test_requests_of_one_batch_may_want_different_outputs(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            names = [output["name"] for output in model.config["output"]]
            sizes = _batch(model)
            wants = [(names[index % len(names)],) for index in range(len(sizes))]
            answers = model.execute(
                [
                    self._request(model, model_name, rows, seed, want)
                    for (seed, rows), want in zip(sizes, wants, strict=True)
                ]
            )
            for answer, want in zip(answers, wants, strict=True):
                for response in answer.responses:
                    assert response.error is None, response.error
                    given = {tensor.name for tensor in response.outputs}
                    assert set(want) <= given, (
                        f"gave the outputs {sorted(given)} where {list(want)} was wanted"
                    )

    # Memory.

    @rule(
        "inputs are views of the bytes that were received, and may be read only",
        "write to a copy: use `x * 2` in the place of `x *= 2`, and give no views to what writes",
        _HOOKS,
    )
    def test_inputs_are_not_written_to(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            requests = [self._request(model, model_name, rows, seed) for seed, rows in _batch(model)]
            before = [bytes(tensor.wire()) for request in requests for tensor in request.inputs.values()]
            model.execute(requests)
            after = [bytes(tensor.wire()) for request in requests for tensor in request.inputs.values()]

            assert before == after, "wrote to the inputs of a request"

    @rule(
        "arrays given to a response are not copied, and are read after the next batches have run",
        "make new arrays for each batch, or copy what is in a buffer that is used again",
        _HOOKS,
    )
    def test_outputs_stay_as_they_are_while_somebody_reads_them(self, model_name: str) -> None:
        """A slow client reads long after the next batches ran, even after the model is gone."""
        with self.driver.load(model_name) as model:
            first = self._run_one(model, model_name, seed=0)
            copy = [frozen(response) for response in first.responses]
            for seed in range(1, 4):
                self._run_one(model, model_name, seed=seed)
                now = [frozen(response) for response in first.responses]
                assert now == copy, f"changed outputs of an earlier request, {seed} batches later"
        now = [frozen(response) for response in first.responses]
        assert now == copy, "changed outputs of a request when the model was unloaded"

    # Trouble.

    @rule(
        "a request may have zero rows where the model batches",
        "answer by outputs of zero rows, or raise InvalidArg",
        _PAGE,
    )
    def test_request_of_zero_rows_is_answered(self, model_name: str) -> None:
        """By zero rows or by an error; a client may send one wherever the model batches."""
        with self.driver.load(model_name) as model:
            if model.handle.max_batch_size == 0:
                pytest.skip("the model does not batch")
            try:
                (answer,) = model.execute([self._request(model, model_name, 0)])
            except Exception:
                answer = Answer([], 1)  # the server answers in the backend's place
            for response in answer.responses:
                if response.error is None:
                    check_fits(response, model.config, 0, is_decoupled=model.handle.is_decoupled)
            self._run_one(model, model_name)

    @rule(
        "a batch that fails leaves the instance as it was, and says in words what was wrong",
        "raise InvalidArg with the name of the input, and keep no state between batches",
        _HOOKS,
    )
    def test_request_without_its_inputs_does_not_spoil_the_instance(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            before = self._run_one(model, model_name)
            try:
                model.execute([build_request(model.config, {})])
            except Exception as exc:
                _check_says_why(exc)

            self._check_same(self._run_one(model, model_name), before)

    @rule(
        "a cancelled request needs a final response, too",
        "answer it like the others, or respond with an error Cancelled",
        _HOOKS,
    )
    def test_cancelled_request_is_still_answered(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            request = self._request(model, model_name)
            request.ticket.cancelled = True
            (answer,) = model.execute([request])

            assert answer.final_count == 1, (
                f"gave {answer.final_count} final responses to a cancelled request"
            )

    # Side by side.

    @rule(
        "models of one backend live side by side",
        "keep what belongs to a model in model.state, and nothing in globals or class attributes",
        _HOOKS,
    )
    def test_models_do_not_share_state(self, model_name: str) -> None:
        with self.driver.load(model_name) as one:
            alone = self._run_one(one, model_name)
            with ExitStack() as stack:
                for name in self.driver.model_names:
                    other = stack.enter_context(self.driver.load(name, alias=f"another_{name}"))
                    self._run_one(other, name)
                    self._check_same(self._run_one(one, model_name), alone)
            self._check_same(self._run_one(one, model_name), alone)

    @rule(
        "instances execute at the same time, each on a thread of its own",
        "keep buffers and sessions in instance.state, and hold no lock that another instance waits for",
        _HOOKS,
    )
    def test_instances_may_run_at_the_same_time(self, model_name: str) -> None:
        with self.driver.load(model_name) as model, self.driver.load(model_name, alias="other") as other:
            alone = self._run_one(model, model_name)
            slots = [(model, index) for index in range(len(model.instances))] + [(other, 0)]

            def run(slot: tuple[DrivenModel, int]) -> list[Answer]:
                driven, index = slot
                return [self._run_one(driven, model_name, instance=index) for _ in range(10)]

            with ThreadPoolExecutor(len(slots)) as threads:
                for answers in threads.map(run, slots):
                    for answer in answers:
                        self._check_same(answer, alone)

    @rule(
        "instance.report_compute takes times of instance.now_ns() from within the execution",
        "call instance.now_ns() before and after the framework runs",
        _HOOKS,
    )
    def test_reported_compute_lies_within_the_execution(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            instance = model.instances[0]
            start = instance.now_ns()
            self._run_one(model, model_name)
            end = instance.now_ns()
            if instance.compute_start_ns or instance.compute_end_ns:  # reporting is voluntary
                times = (start, instance.compute_start_ns, instance.compute_end_ns, end)
                assert list(times) == sorted(times), (
                    f"reported a computation from {times[1]} to {times[2]}, executing from {start} to {end}"
                )

    # What it must not do.

    @rule(
        "a model's files belong to its owner: a backend reads them",
        "write into a temporary directory of your own, and remove that in model_finalize",
        _PAGE,
    )
    def test_the_files_of_the_model_are_left_alone(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            directory = model.handle.directory
        with directory_left_alone(directory), self.driver.load(model_name) as model:
            self._run_one(model, model_name)

    @rule(
        "what a model and its instances hold is given back when it is unloaded",
        "close sessions and files and end threads in model_instance_finalize and model_finalize",
        _HOOKS,
    )
    def test_nothing_grows_with_the_number_of_loads(self, model_name: str) -> None:
        def live() -> None:
            with self.driver.load(model_name) as model:
                self._run_one(model, model_name)

        check_no_growth(live, "each load of a model")

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger(__name__), which the server's log takes",
        _PAGE,
    )
    def test_nothing_is_printed(self, model_name: str) -> None:
        with nothing_printed(), self.driver.load(model_name) as model:
            self._run_one(model, model_name)

    @rule(
        "what all of a process share belongs to the server",
        "give paths, modes and limits to functions instead of changing those of the process",
        _HOOKS,
    )
    def test_the_process_stays_as_it_was(self, model_name: str) -> None:
        with self.driver.load(model_name):
            pass  # importing a framework changes things, once
        with process_as_it_was(), self.driver.load(model_name) as model:
            self._run_one(model, model_name)

    # How.

    def _request(
        self,
        model: DrivenModel,
        model_name: str,
        rows: int = 1,
        seed: int = 0,
        requested_outputs: tuple[str, ...] | None = None,
    ) -> InferRequest:
        arrays = self.make_inputs(model_name, model.config, rows, np.random.default_rng(seed))
        return build_request(model.config, arrays, requested_outputs)

    def _run_one(
        self, model: DrivenModel, model_name: str, rows: int = 1, seed: int = 0, instance: int = 0
    ) -> Answer:
        (answer,) = model.execute([self._request(model, model_name, rows, seed)], instance)
        assert answer.final_count == 1, f"gave {answer.final_count} final responses to a request"
        for response in answer.responses:
            assert response.error is None, response.error
        return answer

    def _check_same(self, got: Answer, expected: Answer) -> None:
        assert len(got.responses) == len(expected.responses), (
            f"gave {len(got.responses)} responses, and {len(expected.responses)} to the same request before"
        )
        for one, other in zip(got.responses, expected.responses, strict=True):
            assert one.error is None, one.error
            check_same(one.outputs, other.outputs, self.relative_tolerance, self.absolute_tolerance)


def _plain(part: object) -> object:
    """Dims as numbers, wherever they come from."""
    return [int(dim) for dim in part] if isinstance(part, list) else part


def _check_says_why(error: Exception) -> None:
    assert str(error), f"raised {type(error).__name__} without a word about what is wrong"


def _batch(model: DrivenModel) -> list[tuple[int, int]]:
    """Seeds and row counts of requests that fill a batch, as far as the model batches."""
    limit = model.handle.max_batch_size
    sizes: list[int] = []
    for rows in (1, 2, 1, 3):
        if sum(sizes) + rows <= limit:
            sizes.append(rows)
    return list(enumerate(sizes or [1]))


def find_models(models: str | Path, cls: type) -> Path:
    """Find the repository that a suite's class names: absolute, beside its module or in a directory above."""
    source = sys.modules[cls.__module__].__file__ or inspect.getfile(cls)
    for base in Path(source).resolve().parents:
        if (base / models).is_dir():
            return base / models
    raise NotADirectoryError(
        f"models={str(models)!r} of {cls.__name__}: no such directory beside {source} or above it"
    )
