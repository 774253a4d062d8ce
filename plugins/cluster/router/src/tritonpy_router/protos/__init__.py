"""Messages of `tritonpy.cluster.v1`, in a private descriptor pool like those of the server."""

from tritonpy_router.protos.messages import *  # noqa: F403  # the stub lists them
