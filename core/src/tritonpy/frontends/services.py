"""What all frontends of one server share beside the data plane."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.frontends.admission import Admission


@dataclass(frozen=True, slots=True)
class FrontendServices:
    """One of each for HTTP and gRPC together; on the loop only.

    Attributes:
        admission: the bytes of requests that are held.
    """

    admission: Admission
