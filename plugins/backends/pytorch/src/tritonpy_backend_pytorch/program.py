"""A model that is loaded and can be called, of whatever kind its file is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from tritonpy.plugin import JsonObject

from tritonpy_backend_pytorch.argument import Argument, Form
from tritonpy_backend_pytorch.feeding import ArgumentFeeder, Call, Feeder, TensorFeeder
from tritonpy_backend_pytorch.names import input_names, place_inputs
from tritonpy_backend_pytorch.tensor_info import TensorInfo


class Program(ABC):
    """One loaded model; calls may come from several threads if `is_shareable`.

    Attributes:
        call: the callable, bound once.
        inputs: what the file says of them; None where it says too little to complete a configuration.
        outputs: likewise.
        known_outputs: places in the result by name, where the file tells; None where it does not.
        owned: addresses of memory that belongs to the model.
        is_shareable: calls change nothing that other calls see.
        keeps_results: calls may write to what earlier ones have returned, in memory that is not in `owned`.
        writes_inputs: calls may write to the tensors that they are given.
        is_spent: a call was made that may have left traces, so the model is to be loaded anew.
        sample_runs: how often a sample has to run until calls are as quick as they will be.
        failure: how the text of an error of a call begins; `{instance}` stands for the name of the instance.
    """

    call: Callable[..., object]
    inputs: tuple[TensorInfo, ...] | None = None
    outputs: tuple[TensorInfo, ...] | None = None
    known_outputs: Mapping[str, int] | None = None
    owned: frozenset[int] = frozenset()
    is_shareable: bool = False
    keeps_results: bool = False
    writes_inputs: bool = True
    is_spent: bool = False
    sample_runs: int = 1
    failure: str = "PyTorch execute failure: "

    @abstractmethod
    def feeder(self, config: JsonObject, datatypes: Mapping[str, str]) -> Feeder:
        """What makes the arguments of its calls.

        Args:
            config: complete.
            datatypes: of all inputs, by name.

        Raises:
            TritonError: the inputs of the configuration are not those of the model.
        """

    def describe(self, batches: bool) -> tuple[Sequence[TensorInfo], Sequence[TensorInfo]] | None:
        """Inputs and outputs for the completion of a configuration; None where the file says too little.

        Args:
            batches: the configuration asks for batches.
        """
        return None if self.inputs is None or self.outputs is None else (self.inputs, self.outputs)

    def sample(self) -> Call | None:
        """Arguments of a call that the file has; None where it has none, or where calls leave traces."""
        return None

    @abstractmethod
    def input_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        """What the file says of the inputs of a configuration, by their names there."""

    @abstractmethod
    def output_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        """What the file says of the outputs of a configuration, by their names there."""


class ArgumentProgram(Program):
    """A model of which no more is known than the arguments of its call: TorchScript and plain modules.

    Args:
        model_name: for errors.
        arguments: of the call, in order.
        call: the callable.
        takes_positional: it takes any number of tensors behind its arguments.
        takes_keywords: it takes tensors of any name beside its arguments.
    """

    def __init__(
        self,
        model_name: str,
        arguments: Sequence[Argument],
        call: Callable[..., object],
        takes_positional: bool = False,
        takes_keywords: bool = False,
    ) -> None:
        self.call = call
        self.arguments = tuple(arguments)
        self._model_name = model_name
        self._takes_positional = takes_positional
        self._takes_keywords = takes_keywords

    def feeder(self, config: JsonObject, datatypes: Mapping[str, str]) -> Feeder:
        arguments = self._arguments_for(config)
        placed = place_inputs(config, arguments)
        optional = {tensor["name"] for tensor in config.get("input", ()) if tensor.get("optional", False)}
        by_argument = {path[0]: name for name, path in placed.items()}
        fed = [argument for argument in arguments if argument.name in by_argument]
        if (
            not optional
            and list(arguments[: len(fed)]) == fed
            and all(argument.form is Form.TENSOR and not argument.is_keyword for argument in fed)
            and "BYTES" not in datatypes.values()
        ):
            ordered = [by_argument[argument.name] for argument in fed]
            return TensorFeeder([(name, datatypes[name]) for name in ordered], self.writes_inputs)
        return ArgumentFeeder(arguments, placed, datatypes, self._model_name, self.writes_inputs)

    def _arguments_for(self, config: JsonObject) -> Sequence[Argument]:
        """The arguments of a call, with one for each input that `*args` or `**kwargs` takes."""
        if not (self._takes_positional or self._takes_keywords):
            return self.arguments
        names = input_names(config)
        known = {argument.name for argument in self.arguments}
        required = {argument.name for argument in self.arguments if not argument.has_default}
        if self._takes_keywords and required <= set(names):
            more = (Argument(name, is_keyword=True) for name in names if name not in known)
            return (*self.arguments, *more)
        positional = [argument for argument in self.arguments if not argument.is_keyword]
        count = len(names) - len(positional) if self._takes_positional else 0
        keywords = self.arguments[len(positional) :]
        return (*positional, *(Argument(f"[{index}]") for index in range(count)), *keywords)

    def input_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        return {}

    def output_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        return {}
