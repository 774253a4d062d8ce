"""Large tensors travel through shared memory, are not copied on the way in, and free it again."""

from __future__ import annotations

import gc

import numpy as np

LARGE = 100_000
"""Elements of FP32: a block of 512 KiB, of which a segment holds eight."""

ADD_ONE = """
return [
    pb_utils.InferenceResponse(
        [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + 1)]
    )
    for request in requests
]
"""


def test_large_inputs_and_outputs_arrive_and_their_blocks_come_back(load_execute):
    worker = load_execute(ADD_ONE)

    for step in range(30):
        array = np.full(LARGE, step, np.float32)
        answers = worker.infer(worker.request(0, X=array), worker.request(1, X=array * 2))

        assert (answers[0]["OUTPUT0"] == step + 1).all()
        assert (answers[1]["OUTPUT0"] == step * 2 + 1).all()
        # EXECUTED itself brings the inputs' blocks back: an idle worker holds none.
        assert worker.endpoint.arena.leased_count == 0
        del answers
        gc.collect()

    assert worker.endpoint.arena.byte_size < 6 * 1024 * 1024
    assert len(worker.endpoint.peer._segments) == 1


def test_an_input_is_a_view_of_the_block_it_came_in(load_execute):
    worker = load_execute(
        """
        array = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        array[0] = 77
        return [answer()]
        """
    )
    request = worker.request(X=np.zeros(LARGE, np.float32))
    [(_, _, _, (reference, _))] = request[8]
    block = worker.endpoint.arena._segments[reference >> 40]

    worker.infer(request)

    offset = reference & (1 << 40) - 1
    assert np.frombuffer(block, np.float32, 1, offset)[0] == 77


def test_an_identity_gives_its_input_back_with_the_answer(load_execute):
    worker = load_execute(
        """
        array = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)])]
        """
    )

    [outputs] = worker.infer(worker.request(X=np.arange(LARGE, dtype=np.float32)))

    assert (outputs["OUTPUT0"] == np.arange(LARGE)).all()
    assert worker.endpoint.arena.leased_count == 0


def test_inputs_nobody_looked_at_give_their_blocks_back(load_execute):
    worker = load_execute("return [answer() for _ in requests]")

    worker.infer(worker.request(X=np.zeros(LARGE, np.float32), Y=np.zeros(LARGE, np.float32)))

    assert worker.endpoint.arena.leased_count == 0


def test_a_failed_batch_gives_its_blocks_back(load_execute):
    worker = load_execute("view = requests[0].inputs()[0].as_numpy(); raise ValueError(view.shape)")

    worker.failure(worker.request(X=np.zeros(LARGE, np.float32)))

    assert worker.endpoint.arena.leased_count == 0


def test_a_model_may_keep_an_input_which_then_stays_valid(load_execute):
    worker = load_execute(
        """
        tensor = requests[0].inputs()[0]
        kept = getattr(self, "kept", tensor)
        self.kept = tensor
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", kept.as_numpy())])]
        """
    )

    def infer(value):
        [outputs] = worker.infer(worker.request(X=np.full(LARGE, value, np.float32)))
        return outputs["OUTPUT0"][[0, -1]].tolist()

    assert infer(1) == [1, 1]
    assert infer(2) == [1, 1]
    assert infer(3) == [2, 2]
    assert worker.endpoint.arena.leased_count == 1


def test_large_strings_travel_too(load_execute):
    worker = load_execute(
        """
        array = requests[0].inputs()[0].as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array[::-1])])]
        """
    )
    array = np.array([b"a" * 50_000, b"b" * 60_000], object)

    [outputs] = worker.infer(worker.request(X=array))

    assert outputs["OUTPUT0"].tolist() == array[::-1].tolist()
    assert worker.endpoint.arena.leased_count == 0
