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
from tritonpy_sdk.testing.samples import build_request, sample_inputs


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

    def test_attributes_are_told_before_the_backend_is_initialized(self) -> None:
        assert isinstance(self.driver.bound.attributes, BackendAttributes)
        assert self.driver.bound.attributes.execution in ("thread", "process")

    def test_execution_of_a_model_is_told_before_the_backend_is_initialized(self, model_name: str) -> None:
        assert self.driver.bound.execution_of(self.driver.load(model_name).handle) in ("thread", "process")

    def test_model_loads_again_after_it_was_unloaded(self, model_name: str) -> None:
        for _ in range(2):
            with self.driver.load(model_name) as model:
                assert model.instances, "the model has no instance"
                self._run_one(model, model_name)

    def test_auto_complete_keeps_what_was_given(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            given, config = model.given, model.config
            for key in ("name", "backend", "default_model_filename"):
                assert given.get(key) in (config.get(key), "", None), f"auto-complete changed '{key}'"
            if given["max_batch_size"]:
                assert config["max_batch_size"] == given["max_batch_size"]
            for key in ("input", "output"):
                for tensor in given[key]:
                    same = [other for other in config[key] if other["name"] == tensor["name"]]
                    assert same, f"auto-complete dropped {key} '{tensor['name']}'"
                    assert same[0]["data_type"] == tensor["data_type"]
                    assert [int(dim) for dim in same[0]["dims"]] == [int(dim) for dim in tensor["dims"]]

    def test_auto_complete_says_the_same_twice(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            assert model.auto_complete() == model.auto_complete()

    def test_model_without_files_leaves_the_others_alone(self, model_name: str) -> None:
        with tempfile.TemporaryDirectory() as empty, self.driver.load(model_name) as model:
            (Path(empty) / str(model.handle.version)).mkdir()
            try:
                with self.driver.load(model_name, alias="without_files", path=Path(empty)):
                    pass  # some backends need no files
            except Exception as exc:
                _check_says_why(exc)
            self._run_one(model, model_name)

    def test_readiness_is_a_truth_value(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            assert model.is_ready() is True

    # Answers.

    def test_every_request_ends_with_exactly_one_final_response(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            requests = [self._request(model, model_name, rows, seed) for seed, rows in _batch(model)]
            answers = model.execute(requests)

            assert [answer.final_count for answer in answers] == [1] * len(requests)
            if not model.handle.is_decoupled:
                assert [len(answer.responses) for answer in answers] == [1] * len(requests)

    def test_outputs_fit_the_configuration(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            for seed, rows in _batch(model):
                request = self._request(model, model_name, rows, seed)
                (answer,) = model.execute([request])
                for response in answer.responses:
                    check_fits(response, model.config, rows, is_decoupled=model.handle.is_decoupled)

    def test_batch_of_many_equals_batches_of_one(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            sizes = _batch(model)
            together = model.execute([self._request(model, model_name, rows, seed) for seed, rows in sizes])
            for (seed, rows), answer in zip(sizes, together, strict=True):
                alone = self._run_one(model, model_name, rows, seed)
                self._check_same(answer, alone)

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
                    assert set(want) <= {tensor.name for tensor in response.outputs}

    # Memory.

    def test_inputs_are_not_written_to(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            requests = [self._request(model, model_name, rows, seed) for seed, rows in _batch(model)]
            before = [bytes(tensor.wire()) for request in requests for tensor in request.inputs.values()]
            model.execute(requests)
            after = [bytes(tensor.wire()) for request in requests for tensor in request.inputs.values()]

            assert before == after

    def test_outputs_stay_as_they_are_while_somebody_reads_them(self, model_name: str) -> None:
        """A slow client reads long after the next batches ran, even after the model is gone."""
        with self.driver.load(model_name) as model:
            first = self._run_one(model, model_name, seed=0)
            copy = [frozen(response) for response in first.responses]
            for seed in range(1, 4):
                self._run_one(model, model_name, seed=seed)
                assert [frozen(response) for response in first.responses] == copy
        assert [frozen(response) for response in first.responses] == copy

    # Trouble.

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

    def test_request_without_its_inputs_does_not_spoil_the_instance(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            before = self._run_one(model, model_name)
            try:
                model.execute([build_request(model.config, {})])
            except Exception as exc:
                _check_says_why(exc)

            self._check_same(self._run_one(model, model_name), before)

    def test_cancelled_request_is_still_answered(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            request = self._request(model, model_name)
            request.ticket.cancelled = True
            (answer,) = model.execute([request])

            assert answer.final_count == 1

    # Side by side.

    def test_models_do_not_share_state(self, model_name: str) -> None:
        with self.driver.load(model_name) as one:
            alone = self._run_one(one, model_name)
            with ExitStack() as stack:
                for name in self.driver.model_names:
                    other = stack.enter_context(self.driver.load(name, alias=f"another_{name}"))
                    self._run_one(other, name)
                    self._check_same(self._run_one(one, model_name), alone)
            self._check_same(self._run_one(one, model_name), alone)

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

    def test_reported_compute_lies_within_the_execution(self, model_name: str) -> None:
        with self.driver.load(model_name) as model:
            instance = model.instances[0]
            start = instance.now_ns()
            self._run_one(model, model_name)
            end = instance.now_ns()
            if instance.compute_start_ns or instance.compute_end_ns:  # reporting is voluntary
                assert start <= instance.compute_start_ns <= instance.compute_end_ns <= end

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
        assert answer.final_count == 1
        for response in answer.responses:
            assert response.error is None, response.error
        return answer

    def _check_same(self, got: Answer, expected: Answer) -> None:
        assert len(got.responses) == len(expected.responses)
        for one, other in zip(got.responses, expected.responses, strict=True):
            assert one.error is None, one.error
            check_same(one.outputs, other.outputs, self.relative_tolerance, self.absolute_tolerance)


def _check_says_why(error: Exception) -> None:
    assert str(error), f"{type(error).__name__} does not say what is wrong"


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
