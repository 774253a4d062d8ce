"""Every deliberate difference between the real server, 2.51, and ours, with its reason.

The comparison asks these when two verdicts are not equal. One that is listed here and no longer met fails a
test, so that the list stays true. For users the same is told in `docs/reference/differences.md`.
"""

from __future__ import annotations

from .comparison import Difference

INDEX = frozenset({"index"})
WORDS = frozenset({"reason", "index"})

DIFFERENCES = (
    Difference(
        "fields of newer versions",
        "`model_metrics` came after 2.51, which takes it for an unknown field.",
        real="poll failed to read text proto from .*",
        cases="metric_.*|empty_metrics|histogram",
    ),
    Difference(
        "a backend that is not installed",
        "Backends are found by name among what is installed, and the error lists what there is.",
        real="load Invalid argument: unable to find backend library for backend '.*",
        ours="load Not found: no installed plugin of kind 'backends' is called '.*",
        what=WORDS,
    ),
    Difference(
        "where the library of a backend is looked for",
        "In the same three places; the real server's list ends with a blank.",
        real="load .*unable to find backend library '.*' for model '.*', searched: .*",
        ours="load .*unable to find backend library '.*' for model '.*', searched: .*",
        what=WORDS,
    ),
    Difference(
        "the index of a model without a version",
        "The real server forgets it. Whoever looks for it should find why it is not served.",
        real="load at least one version must be available .*",
        ours="load at least one version must be available .*",
        what=INDEX,
    ),
    Difference(
        "an element type that has no name",
        "The real server serves an input of type 77, which no request can have.",
        real=" ",
        ours=".*expected one of TYPE_INVALID, TYPE_BOOL, .*",
    ),
    Difference(
        "a slot utilization that is no number",
        "It is not in the range that the real server asks for.",
        real=" ",
        ours="poll .*minimum slot utilization must be in range.*",
    ),
    Difference(
        "a tensor that is described twice",
        "The real server shows both, and checks requests against one of them.",
        real=" ",
        ours="load .*model input 'A' is specified 2 times for .*",
    ),
    Difference(
        "a state without names",
        "The real server loads the model and ends at the first request to it.",
        real=" ",
        ours=".*sequence batching state must specify 'input_name' and 'output_name' for .*",
    ),
    Difference(
        "a blank in a warmup message",
        "`shortonly has 3 bytes` says nothing.",
        real=".*warmup setting expects .* provided from .*only has .*",
        ours=".*warmup setting expects .* provided from .* only has .*",
        what=WORDS,
    ),
)
"""Of ours as a server."""

ONLY_IN_A_SERVER = {
    "the index of a model without a version",
    "a blank in a warmup message",
}
"""What reading a configuration alone does not meet."""
