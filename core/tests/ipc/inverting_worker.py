"""A worker for the tests: sends tensors back with every bit inverted, and tells about itself when asked."""

import sys
import time

import numpy as np
from tritonpy.ipc.channel import WorkerChannel

INVERT, STATE, IS_CANCELLED, HOLD, HANG = range(1, 6)


def main() -> None:
    channel = WorkerChannel.from_environment()
    endpoint = channel.endpoint
    if "--exit-with-server" in sys.argv:
        channel.exit_with_server()
    held = []
    while (message := channel.receive()) is not None:
        kind, _, *payload = message
        if kind == INVERT:
            inverted = [~np.frombuffer(endpoint.adopt(data), np.uint8) for data in payload[0]]
            channel.send(kind, [endpoint.export(array.data) for array in inverted])
        elif kind == STATE:
            channel.send(kind, endpoint.arena.byte_size, endpoint.arena.leased_count)
        elif kind == IS_CANCELLED:
            channel.send(kind, channel.is_cancelled(payload[0]))
        elif kind == HOLD:
            held.append(endpoint.adopt(payload[0]))
            channel.send(kind)
        elif kind == HANG:
            channel.send(kind)
            time.sleep(3600)


if __name__ == "__main__":
    main()
