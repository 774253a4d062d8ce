"""Every deliberate difference between the real server, 2.51, and ours, with its reason.

The comparison asks these when two answers are not equal. One that is listed here and no longer met by the
fixed requests fails a test, so that the list stays true. For users the same is told in
`docs/reference/differences.md`; why we follow which Triton is in `docs/adr/0010-which-triton.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .matching import (
    OF_A_PARAMETER,
    OF_AN_INPUT,
    Parts,
    accepts,
    always,
    calls,
    gets,
    has_header,
    has_no_elements,
    has_nul,
    has_several_inputs,
    has_several_parameters,
    http,
    id_up_to_nul,
    line,
    messages,
    repeats_a_key,
    rounded,
    says_more,
    without,
    without_parts,
)
from .servers import Grpc, Http, Request


@dataclass(frozen=True)
class Difference:
    """Where the answers may differ.

    Attributes:
        name: what is different.
        reason: why.
        asked: for which requests.
        real, ours: regular expressions that the two answers match: `<status> <text of the error>`, or the
            status alone for a success.
        same: what of an answer must be equal all the same; by default nothing.
        alike: whether two answers are as they may be; by default they are.
    """

    name: str
    reason: str
    asked: Callable[[Request], bool] = field(default=always, compare=False)
    real: str = ".*"
    ours: str = ".*"
    same: Callable[[Parts], object] | None = field(default=None, compare=False)
    alike: Callable[[Parts, Parts], bool] | None = field(default=None, compare=False)

    def explains(self, request: Request, real: Parts, ours: Parts) -> bool:
        """Whether this is why the answers to `request` are not equal."""
        return (
            self.asked(request)
            and re.fullmatch(self.real, line(real), re.DOTALL) is not None
            and re.fullmatch(self.ours, line(ours), re.DOTALL) is not None
            and (self.same is None or self.same(real) == self.same(ours))
            and (self.alike is None or self.alike(real, ours))
        )


DIFFERENCES = (
    Difference(
        "the release",
        "The version in the server metadata is ours.",
        asked=lambda request: gets("/v2")(request) or calls("ServerMetadata")(request),
        same=without("version"),
    ),
    Difference(
        "which of several wrong inputs is named",
        "The real server takes inputs in the order of a hash table, ours in the order of the request.",
        asked=has_several_inputs,
        real=OF_AN_INPUT,
        ours=OF_AN_INPUT,
    ),
    Difference(
        "which of several wrong parameters is named",
        "Parameters of gRPC come in the order of a hash table, which is another in each process.",
        asked=has_several_parameters,
        real=OF_A_PARAMETER,
        ours=OF_A_PARAMETER,
    ),
    Difference(
        "why a model cannot be loaded, or memory be registered",
        "Who asks is who must mend it; the real server says why in its log alone, or nowhere.",
        alike=says_more,
    ),
    Difference(
        "a missing required input, while as many inputs come as are required",
        "The real server counts inputs, and runs the model without one that it cannot do without.",
        ours=r".*expected \d+ inputs but got \d+ inputs .*missing required input\(s\) \[.*",
    ),
    Difference(
        "an empty batch",
        "To the real server 0 is no batch dimension: it complains of sizes, runs the model with a shape that "
        "lacks the batch, or waits for ever.",
        ours=".*inference request batch-size must be >= 1 for '.*'",
    ),
    Difference(
        "a negative dimension",
        "The real server multiplies it out: `Expected -8, got 8`.",
        ours=".*All input dimensions should be specified for input .*",
        real="(400|INVALID_ARGUMENT|OK) .*",
    ),
    Difference(
        "the last digit of a number in JSON",
        "The real server's parser may be one off in the last of 17 digits; ours rounds correctly.",
        real="200",
        ours="200",
        asked=lambda request: isinstance(request, Http),
        same=rounded,
    ),
    Difference(
        "a key that comes twice",
        "The real server takes the first, ours the last, as most parsers do. JSON leaves it open.",
        asked=repeats_a_key,
    ),
    Difference(
        "a number that goes on behind NaN or Infinity",
        "The real server reads `Infinity.5` as 0.5. It is no JSON by any reading.",
        asked=lambda request: re.search(rb"(NaN|Inf(inity)?)[.e]", http(request) or b"") is not None,
        ours="500 failed to parse the request JSON buffer: Missing a comma or .*",
    ),
    Difference(
        "integers that do not fit",
        "The real server cuts their upper bits off without a word: 300 becomes 44 as UINT8.",
        real="(200|OK)",
        ours=".* does not fit into U?INT(8|16|32), which holds .*",
    ),
    Difference(
        "data for no elements",
        "The real server does not look at the data of an input without elements: it drops them silently.",
        asked=has_no_elements,
        ours="500 Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    Difference(
        "a NUL in an id",
        "The real server ends the id there, and answers with another one than it was sent.",
        asked=has_nul,
        same=id_up_to_nul,
    ),
    Difference(
        "text that is not UTF-8",
        "The real server puts such an id or name into its answer, which is then no JSON. In BYTES data, "
        "where bytes are what is meant, both take it.",
        asked=lambda request: isinstance(request, Http),
        ours="400 Unable to parse '.*': expected UTF-8, got .*",
    ),
    Difference(
        "deep nesting",
        "Newer servers end at 100 levels, too; without a limit a body of brackets eats the stack.",
        asked=lambda request: isinstance(request, Http),
        ours=r"400 .*JSON nesting depth exceeds maximum allowed limit \(\d+\).*",
    ),
    Difference(
        "an output that is wanted twice",
        "Refused, as by newer versions: it says two things of one tensor.",
        ours=r".*output '.*' already exists in request",
    ),
    Difference(
        "a key of shared memory that is none",
        "Newer versions have these words, and 400.",
        real="(500|INTERNAL) Unable to open shared memory region: .*",
        ours="(400|INVALID_ARGUMENT) cannot register shared memory region '.*' - invalid shm key '.*",
    ),
    Difference(
        "a load of what is no name of a model",
        "Newer versions have these words, and 400.",
        real="(500|INTERNAL) failed to load '.*",
        ours="(400|INVALID_ARGUMENT) (Model name cannot be empty|model name must not contain).*",
    ),
    Difference(
        "an index with `ready` that is no boolean",
        "Newer versions have these words, and 400.",
        asked=lambda request: isinstance(request, Http) and request.path.endswith("/index"),
        real="500 attempt to access JSON non-boolean as boolean",
        ours="400 Invalid value for 'ready': expected a boolean",
    ),
    Difference(
        "why a model is not ready",
        "A reason beside the error, for whoever looks at a probe that fails.",
        asked=lambda request: isinstance(request, Http) and request.path.endswith("/ready"),
        real="400 Model version not ready",
        ours='400 {"error":"Model version not ready","reason":".*"}',
    ),
    Difference(
        "a version that is not only digits",
        "The real server reads `1x`, ` 1` and `1.5` as 1.",
        asked=lambda request: isinstance(request, Grpc),
        ours="INVALID_ARGUMENT failed to get model version from specified version string .*",
    ),
    Difference(
        "a header length that is no number",
        "The real server reads `1e2` as 1 and `abc` as 0, a raw request; newer ones refuse, as ours does.",
        asked=has_header("Inference-Header-Content-Length"),
        ours="400 (Unable to parse Inference-Header-Content-Length, got:|inference header size should be) .*",
    ),
    Difference(
        "the status of a model's error in generate",
        "The real server says 400 whatever the error is; its own table of codes says otherwise.",
        asked=lambda request: isinstance(request, Http) and "/generate" in request.path,
        real="400 .*",
        ours="(404|500|501|503) .*",
        same=without_parts("status"),
    ),
    Difference(
        "response parameters of a Python model",
        "Python models could not set them in 2.51; in newer servers they can.",
        real=".*incompatible constructor arguments.*",
        ours="(200|OK)",
    ),
    Difference(
        "an error without a text",
        "Ours says at least which code it is, where no text would look like success in a stream.",
        asked=lambda request: isinstance(request, Grpc),
        real="INTERNAL",
        ours="INTERNAL Internal",
    ),
    Difference(
        "a verbose log level beyond 32 bits",
        "The real server cuts the upper bits off: 4294967296 switches the verbose log off.",
        asked=gets("/v2/logging"),
        ours="400 log_verbose_level is out of range: .*",
    ),
    Difference(
        "more than 2^32 classes",
        "The real server cuts the upper bits off: of 4294967296 there is none.",
        asked=lambda request: b"classification" in (http(request) or b"".join(messages(request))),
        real="(200|OK)",
        ours="(200|OK)",
    ),
    Difference(
        "compressed data that are damaged",
        "The real server reads what it can of them, and complains of what is missing there.",
        asked=has_header("Content-Encoding"),
        ours="400 the request's body is (not valid|incomplete).*",
    ),
    Difference(
        "compressed data in several members, or without a header",
        "The real server ends after the first member. gzip allows several; deflate can be read in two ways.",
        asked=has_header("Content-Encoding"),
        real="(400|500) .*",
        ours="200",
    ),
    Difference(
        "a blank before the quality of an encoding",
        "HTTP allows it; the real server then knows no such encoding, and does not compress.",
        asked=accepts("gzip ;q=1"),
        same=without_parts("content-encoding"),
    ),
    Difference(
        "half of a surrogate pair in BYTES data",
        "Python writes a byte that is not UTF-8 in this way; ours gives the model that byte, and the real "
        "server three others.",
        asked=lambda request: rb'"\udc' in (http(request) or b""),
        real="200",
        ours="200",
    ),
    Difference(
        "no bytes at the beginning of a region",
        "The real server takes one from 0 there, and finds the end of the part beyond the region's.",
        real="400 Invalid offset \\+ byte size for shared memory region: .*",
        ours=".*(input byte size mismatch .*, got 0|\\(0 bytes\\) should be at least .*)",
    ),
    Difference(
        "the log format json",
        "It is ours alone.",
        asked=lambda request: http(request) == b'{"log_format": "json"}',
        ours="200",
    ),
    Difference(
        "a call that does not exist",
        "gRPC's own library answers it, in its own words.",
        ours="UNIMPLEMENTED Method not found!",
        real="UNIMPLEMENTED",
    ),
    Difference(
        "what is no message in a stream",
        "The real server ends the stream without a word; ours says what is wrong and goes on.",
        asked=calls("ModelStreamInfer"),
        real="OK",
        ours="OK Unable to parse request",
    ),
)
