"""The program of an agent's process: `python -m tritonpy_abi.agents.child LIBRARY MESSAGES LEVELS`.

Calls what the server asks for, each on a thread of its own, and ends with the server however that ends. The
last two are descriptors: of the connection with the server, and of the byte that says what is logged.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tritonpy.abi_child import Internal, NotFound, TritonError

from tritonpy_abi.agents.messages import Messages
from tritonpy_abi.libraries import Library, open_library
from tritonpy_abi.shim import CData, Shim, open_shim

if TYPE_CHECKING:  # it brings numpy, for which every first load would wait
    from tritonpy.plugin import JsonObject

ACTIONS = ("LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE")
"""By their numbers in `TRITONREPOAGENT_ActionType`."""

_PR_SET_PDEATHSIG = 1

_PREFIX = "TRITONREPOAGENT_"


class AgentCalls:
    """An opened agent and its models.

    Args:
        path: of the library.
        levels: a descriptor of what the server logs; it is closed.

    Raises:
        NotFound: it cannot be opened, or is no agent.
        TritonError: see `open_shim`.
    """

    def __init__(self, path: str, levels: int) -> None:
        self._shim: Shim = open_shim()
        self._lib = self._shim.lib
        self._shim.check(self._lib.TRITONPY_LogFollow(levels))
        os.close(levels)  # before the library is there, which could open it for writing
        self._lib.TRITONPY_AgentPrintLines()
        self._library: Library = open_library(path)
        if self._library.function(f"{_PREFIX}ModelAction") is None:
            raise NotFound(
                f"unable to find required entrypoint '{_PREFIX}ModelAction' in shared library: {path}: "
                f"it is no repository agent"
            )
        self._agent = self._lib.TRITONPY_Agent()
        self._models: dict[int, CData] = {}

    def initialize(self) -> None:
        """Call `Initialize`, if there is one."""
        self._call("Initialize")

    def finalize(self) -> None:
        """Call `Finalize`, if there is one."""
        self._call("Finalize")

    def metrics(self) -> str:
        """The metrics of the agent."""
        return self._shim.metrics()

    def model_initialize(self, number: int, model: Mapping[str, str | None], parameters: JsonObject) -> None:
        """Make a model, and call `ModelInitialize`, if there is one; after an error there is no such model.

        Args:
            number: what it is called from now on.
            model: texts for `TRITONPY_AgentModelNew`.
            parameters: for the agent, in order.
        """
        ffi = self._shim.ffi
        names = ("location", "config", "room", "why_no_room")
        texts = [
            ffi.NULL if (text := model[name]) is None else ffi.new("char[]", _bytes(text)) for name in names
        ]
        out = ffi.new("TRITONREPOAGENT_AgentModel **")
        self._shim.check(self._lib.TRITONPY_AgentModelNew(out, *texts))
        self._models[number] = out[0]
        try:
            for name, value in parameters.items():
                added = self._lib.TRITONPY_AgentModelAddParameter(out[0], _bytes(name), _bytes(value))
                self._shim.check(added)
            self._model_call("ModelInitialize", number)
        except BaseException:
            self._end(number)
            raise

    def model_action(self, number: int, action: str) -> str:
        """Call `ModelAction`; returns where the model is to be loaded from."""
        function = self._library.function(f"{_PREFIX}ModelAction")
        model = self._models[number]
        self._shim.check(
            self._lib.TRITONPY_AgentModelAction(function, self._agent, model, ACTIONS.index(action))
        )
        location = self._shim.ffi.string(self._lib.TRITONPY_AgentModelLocation(model))
        assert isinstance(location, bytes)  # it is text only for wide characters
        return location.decode(errors="surrogateescape")

    def model_finalize(self, number: int) -> None:
        """Call `ModelFinalize`, if there is one, and end the model in any case."""
        try:
            self._model_call("ModelFinalize", number)
        finally:
            self._end(number)

    def _call(self, name: str) -> None:
        function = self._library.function(_PREFIX + name)
        if function is not None:
            self._shim.check(self._lib.TRITONPY_AgentCall(function, (_PREFIX + name).encode(), self._agent))

    def _model_call(self, name: str, number: int) -> None:
        function = self._library.function(_PREFIX + name)
        if function is not None:
            model = self._models[number]
            error = self._lib.TRITONPY_AgentModelCall(function, (_PREFIX + name).encode(), self._agent, model)
            self._shim.check(error)

    def _end(self, number: int) -> None:
        self._lib.TRITONPY_AgentModelDelete(self._models.pop(number))


class AgentServer:
    """Answers messages by calling the agent.

    Args:
        path: of the library.
        messages: from and to the server.
        levels: for `AgentCalls`.
    """

    def __init__(self, path: str, messages: Messages, levels: int) -> None:
        self._path = path
        self._messages = messages
        self._levels = levels
        self._calls: AgentCalls | None = None
        self._answering = threading.Lock()  # so that the last metrics are sent last

    def serve(self) -> None:
        """Take messages until the server says that this is the end; without that, end this process."""
        while (message := self._messages.receive()) is not None:
            if message["call"] == "end":
                return
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        end_at_once()

    def _answer(self, message: JsonObject) -> None:
        try:
            reply = self._carry_out(message)
        except TritonError as exc:
            reply = {"error": [int(exc.code), exc.message]}
        except Exception as exc:
            reply = {"error": [int(Internal.code), f"{message['call']}: {type(exc).__name__}: {exc}"]}
        try:
            with self._answering:
                metrics = "[]" if self._calls is None else self._calls.metrics()
                self._messages.send({"number": message["number"], "metrics": metrics, **reply})
        except OSError as exc:
            # The server is gone; or the agent has closed what is not its own, which only this process
            # can see, as it still waits for messages.
            print(f"cannot answer the server: {exc.strerror}", file=sys.stderr, flush=True)
            end_at_once()

    def _carry_out(self, message: JsonObject) -> JsonObject:
        if message["call"] == "open":
            self._calls = AgentCalls(self._path, self._levels)
            return {}
        calls = self._calls
        assert calls is not None  # asked for first
        carry_out: Mapping[str, Callable[[], str | None]] = {
            "Initialize": calls.initialize,
            "Finalize": calls.finalize,
            "ModelInitialize": lambda: calls.model_initialize(
                message["model"], message["texts"], message["parameters"]
            ),
            "ModelAction": lambda: calls.model_action(message["model"], message["action"]),
            "ModelFinalize": lambda: calls.model_finalize(message["model"]),
        }
        return {"location": carry_out[message["call"]]()}


def _bytes(text: str) -> bytes:
    """As they were: what came as a path may be no UTF-8."""
    return text.encode(errors="surrogateescape")


def end_at_once() -> None:
    """End this process in any state of its threads, and all that they have started."""
    os.killpg(0, signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Serve the descriptors that this process was started with."""
    path, connection, levels = arguments
    # A service manager's SIGTERM reaches all processes; when to go is the server's decision. A handler, not
    # SIG_IGN: programs that an agent starts would inherit the latter.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    # One that is stopped cannot see the connection's end: it goes on, and ends what it has started, too.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    connected = socket.socket(fileno=int(connection))
    connected.set_inheritable(False)
    AgentServer(path, Messages(connected), int(levels)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
