"""The plan of an ensemble: which step waits for which, and what each is given; made before any request.

The steps between two decoupled ones form a stage. All tensors from outside a stage are there when it begins:
those of the request, or those of one response of the decoupled step before. So within a stage only steps wait
for steps, and a request runs each of its stages once for every such beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonpy.config.validate_ensemble import decoupled_origins, in_order, inner_dims
from tritonpy.handles import JsonObject
from tritonpy.model.model import LoadedModel
from tritonpy.model.signature import Signature
from tritonpy.tensor import Tensor

_MOST_REMEMBERED = 64
"""Sets of requested outputs for which a course is kept."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The change of a tensor's batch dimension between a model that batches and one that does not.

    Attributes:
        dims: what the receiver takes, without the batch dimension.
        batches: the receiver has one.
    """

    dims: tuple[int, ...]
    batches: bool

    def apply(self, tensor: Tensor, name: str) -> Tensor:
        """The same bytes as the receiver's input `name`; a tensor that fits neither way is left as it is."""
        shape = tensor.shape
        fits = len(shape) == len(self.dims) and all(
            want in (-1, got) for want, got in zip(self.dims, shape, strict=True)
        )
        if self.batches and fits:
            return Tensor(name, tensor.datatype, (1, *shape), tensor.buffer)
        if not (self.batches or fits) and shape[:1] == (1,):
            return Tensor(name, tensor.datatype, shape[1:], tensor.buffer)
        return tensor.renamed(name)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an ensemble, as far as a set of requested outputs needs it.

    Attributes:
        number: its place in the configuration.
        model: answers its requests.
        inputs: of the model, each with the ensemble's tensor it is given, and how that has to be fitted.
        outputs: the ensemble's tensors by the model's outputs.
        wanted: those of the model's outputs.
        writes_output: an output of the ensemble is among them, and answered at the end of the step's stage.
        opens: the stage that begins with each of its responses, if it is decoupled.
        may_wait: its model may be told to wait until its responses are worked on; not if that is work for the
            same model.
    """

    number: int
    model: LoadedModel
    inputs: tuple[tuple[str, str, Fit | None], ...]
    outputs: Mapping[str, str]
    wanted: tuple[str, ...]
    writes_output: bool
    opens: Stage | None = None
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """The steps between two decoupled ones.

    Attributes:
        steps: its steps.
        first: those that can run when it begins, by index in `steps`.
        followers: for each step those that wait for it.
        waits_for: for each step how many steps it waits for.
        readers: how often each tensor that is no output of the ensemble is read.
        outputs: the ensemble's, if it answers at the end of this stage: name, tensor, fit.
        writer_count: how many steps write one of these.
        models: those that have to answer until this stage and those behind it are over.
    """

    steps: tuple[Step, ...]
    first: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]
    waits_for: tuple[int, ...]
    readers: Mapping[str, int]
    outputs: tuple[tuple[str, Fit | None], ...] | None
    writer_count: int
    models: frozenset[LoadedModel]


class Plan:
    """The graph of one ensemble version, bound to the models that serve now.

    Args:
        name: the ensemble.
        config: its settled configuration, which fits the models.
        models: the model of each step.
        signatures: what these take and give.

    Attributes:
        name: as given.
        is_decoupled: some step is, and so is the ensemble.
        max_open_count: how many requests each step may have open; 0 for any number.
        step_count: of the configuration.
    """

    def __init__(
        self,
        name: str,
        config: JsonObject,
        models: Sequence[LoadedModel],
        signatures: Sequence[Signature],
    ) -> None:
        self.name = name
        self.is_decoupled = any(model.is_decoupled for model in models)
        self.max_open_count: int = config["ensemble_scheduling"].get("max_inflight_requests", 0)
        self.step_count = len(models)
        self._steps = config["ensemble_scheduling"]["step"]
        self._order = in_order(config)
        self._origins = decoupled_origins(name, config, [model.is_decoupled for model in models])
        self._models = models
        self._signatures = signatures
        self._batches = config.get("max_batch_size", 0) > 0
        self._output_dims = {tensor["name"]: inner_dims(tensor) for tensor in config["output"]}
        self._writers = {
            tensor: index for index, step in enumerate(self._steps) for tensor in step["output_map"].values()
        }
        self._courses: dict[tuple[str, ...] | None, Stage] = {}

    def course(self, requested: tuple[str, ...] | None) -> Stage:
        """The first stage of what has to be run for these outputs; None for all of them."""
        course = self._courses.get(requested)
        if course is None:
            if len(self._courses) >= _MOST_REMEMBERED:
                self._courses.clear()
            wanted = [name for name in self._output_dims if requested is None or name in requested]
            course = self._courses[requested] = self._compile(wanted)
        return course

    def _compile(self, outputs: Sequence[str]) -> Stage:
        needed, tensors = self._needed(outputs)
        stage: Stage | None = None
        origin = next((self._origin_of(tensor) for tensor in outputs), -1)
        answers: Sequence[str] | None = outputs
        members: dict[int, list[int]] = {}
        for index in self._order:
            if index in needed:
                members.setdefault(self._origins[index], []).append(index)
        while True:  # from the last stage to the first
            stage = self._stage(members.get(origin, ()), tensors, answers, stage)
            if origin < 0:
                return stage
            answers = None
            origin = self._origins[origin]

    def _needed(self, outputs: Sequence[str]) -> tuple[set[int], set[str]]:
        """The steps that have to be run, and the tensors that they and the answer are made of."""
        needed: set[int] = set()
        tensors = set(outputs)
        due = list(outputs)
        while due:
            writer = self._writers.get(due.pop())
            if writer is not None and writer not in needed:
                needed.add(writer)
                read = self._steps[writer]["input_map"].values()
                tensors.update(read)
                due.extend(read)
        return needed, tensors

    def _origin_of(self, tensor: str) -> int:
        writer = self._writers.get(tensor)
        if writer is None:
            return -1
        return writer if self._models[writer].is_decoupled else self._origins[writer]

    def _stage(
        self,
        members: Sequence[int],
        tensors: set[str],
        outputs: Sequence[str] | None,
        opened: Stage | None,
    ) -> Stage:
        place = {index: position for position, index in enumerate(members)}
        answered = frozenset(outputs or ())
        followers: list[list[int]] = [[] for _ in members]
        waits_for: list[int] = []
        readers: dict[str, int] = {}
        for position, index in enumerate(members):
            read = self._steps[index]["input_map"].values()
            upstream = place.keys() & {self._writers.get(tensor) for tensor in read}
            waits_for.append(len(upstream))
            for writer in upstream:
                followers[place[writer]].append(position)
            for tensor in read:
                if tensor not in answered:
                    readers[tensor] = readers.get(tensor, 0) + 1
        models = frozenset[LoadedModel]().union(*(self._models[index].all_models for index in members))
        return Stage(
            tuple(self._step(index, tensors, answered, opened) for index in members),
            tuple(position for position, count in enumerate(waits_for) if not count),
            tuple(map(tuple, followers)),
            tuple(waits_for),
            readers,
            tuple((tensor, self._output_fit(tensor)) for tensor in outputs) if outputs is not None else None,
            len(place.keys() & {self._writers.get(tensor) for tensor in answered}),
            models | opened.models if opened is not None else models,
        )

    def _step(self, index: int, tensors: set[str], answered: frozenset[str], opened: Stage | None) -> Step:
        step, model, signature = self._steps[index], self._models[index], self._signatures[index]
        batches = signature.max_batch_size > 0
        inputs = []
        for name, tensor in step["input_map"].items():
            fit = None
            if self._has_batch(tensor) != batches:
                shape = signature.inputs[name].shape
                fit = Fit(shape[1:] if batches else shape, batches)
            inputs.append((name, tensor, fit))
        outputs = {name: tensor for name, tensor in step["output_map"].items() if tensor in tensors}
        opens = opened if model.is_decoupled else None
        return Step(
            index,
            model,
            tuple(inputs),
            outputs,
            tuple(outputs),
            opens is None and not answered.isdisjoint(outputs.values()),
            opens,
            opens is not None and model.all_models.isdisjoint(opens.models),
        )

    def _output_fit(self, tensor: str) -> Fit | None:
        if self._has_batch(tensor) == self._batches:
            return None
        return Fit(self._output_dims[tensor], self._batches)

    def _has_batch(self, tensor: str) -> bool:
        """True if the maker of a tensor gives it a batch dimension."""
        writer = self._writers.get(tensor)
        return self._batches if writer is None else self._signatures[writer].max_batch_size > 0
