"""The plan by which batches of one model are executed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tritonpy.batches.batch_inputs import read_batch_inputs
from tritonpy.batches.bindings import Binding, bind_inputs, bind_outputs
from tritonpy.batches.gather import Entry, Feeds, ReadTensor, gather, group, open_request, scatter
from tritonpy.buffers import BlockPool
from tritonpy.errors import TritonError
from tritonpy.handles import JsonObject
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Array

Run = Callable[[Feeds, list[str]], Sequence[Array]]
"""One call of the model: inputs by name, and the outputs that are wanted; returns those in that order.

Raises:
    TritonError: it failed.
"""


class BatchPlan:
    """Makes tensors for calls of a model from requests, and responses from its outputs.

    It knows what a configuration can say about tensors: ragged inputs, batch inputs and outputs, shape
    tensors, optional inputs, controls and states of sequences. Made once for a model version, and used
    by any number of instances at the same time.

    Args:
        config: complete, as it is in the hook `model_initialize`.
        pool: where batches are gathered.
        scalars: tensors that have no dimension in the model, which a configuration cannot say.

    Attributes:
        inputs: by name, those that requests bring when they are executed.
        outputs: those that the model is asked for.
        batch_inputs: what is made for each batch.
    """

    def __init__(self, config: JsonObject, pool: BlockPool, scalars: Collection[str] = ()) -> None:
        self.inputs = bind_inputs(config, scalars)
        self.outputs = bind_outputs(config, scalars)
        self.batch_inputs = read_batch_inputs(config)
        self._model_name: str = config["name"]
        self._batches = config.get("max_batch_size", 0) > 0
        self._pool = pool

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All inputs and outputs."""
        return (*self.inputs.values(), *self.outputs)

    def execute(
        self,
        requests: Sequence[InferRequest],
        run: Run,
        read: ReadTensor = lambda binding, tensor: tensor.numpy(),
    ) -> list[InferResponse]:
        """Answer every request: in groups that can be stacked, and one by one where a group fails.

        Running them alone after a failure keeps a value that only the model can refuse, such as an index out
        of range, from failing the requests it happened to be batched with.

        Args:
            requests: as the hook `model_instance_execute` gets them.
            run: calls the model once.
            read: makes an array of a tensor.
        """
        responses: dict[int, InferResponse] = {}
        entries: list[Entry] = []
        for index, request in enumerate(requests):
            try:
                entries.append(open_request(index, request, self.inputs, read))
            except TritonError as exc:
                responses[index] = InferResponse(error=exc)
        groups = group(entries, self.inputs) if self._batches and entries else [[entry] for entry in entries]
        for together in groups:
            responses |= self._answer(together, run)
        return [responses[index] for index in range(len(requests))]

    def _answer(self, entries: Sequence[Entry], run: Run) -> dict[int, InferResponse]:
        try:
            return self._call(entries, run)
        except TritonError as exc:
            if len(entries) == 1:
                return {entries[0].index: InferResponse(error=exc)}
        responses: dict[int, InferResponse] = {}
        for entry in entries:
            responses |= self._answer([entry], run)
        return responses

    def _call(self, entries: Sequence[Entry], run: Run) -> dict[int, InferResponse]:
        wanted = self.outputs
        if all(entry.request.requested_outputs is not None for entry in entries):
            wanted = tuple(
                binding for binding in wanted if any(entry.request.wants(binding.name) for entry in entries)
            )
        arrays: Sequence[Array] = ()
        if wanted:
            # Not held here while outputs are on their way: a gathered block may be used again.
            arrays = run(
                gather(entries, self.inputs, self.batch_inputs, self._pool),
                [binding.name for binding in wanted],
            )
        return scatter(list(zip(wanted, arrays, strict=True)), entries, self._model_name)
