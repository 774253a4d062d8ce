"""The functions that a program serves elsewhere, and its connections to the server there."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from tritonpy.errors import ErrorCode, Internal, InvalidArg, TritonError, Unavailable

from tritonpy_sdk.functions.bound import Bound
from tritonpy_sdk.remote.address import BindAddress
from tritonpy_sdk.remote.instances import InstanceThread
from tritonpy_sdk.remote.session import Refused, Session

_log = logging.getLogger("tritonpy.remote")

_FIRST_RETRY_S = 0.1
_OPEN_S = 10.0
_LOOK_S = 0.2


class RemoteFunction:
    """A function that this program serves; on the loop, once it has opened.

    Attributes:
        bound: what is served.
        number: of the function, never used again.
        files: of its warm-up and states, as they are now: it is bound again when they may be gone.
        instances: its threads.
        outcome: ends when the server serves it for the first time, or cannot.
        ended: ends when the server asks nothing of it any more.
    """

    def __init__(self, bound: Bound, number: int) -> None:
        self.bound = bound
        self.number = number
        self.files = bound.settings.files()
        self.instances = [InstanceThread(bound, index) for index in range(len(bound.functions))]
        self.outcome: Future[None] = Future()
        self.ended: Future[str] = Future()
        self.is_served = False

    def open(self, is_given_up: Callable[[], bool]) -> None:
        """Wait until its functions can be called; raises what they raise, or that it is given up."""
        try:
            for instance in self.instances:
                while not instance.opened.done() or is_given_up():
                    if is_given_up():
                        raise Unavailable(f"model '{self.bound.name}': the program was told to end")
                    wait((instance.opened,), _LOOK_S)
                instance.opened.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End its threads when they have executed what they have; does not wait."""
        for instance in self.instances:
            instance.close()


class Program:
    """The connections of this program, one after the other, on a loop and thread of its own.

    Attributes:
        failure: what has ended it and should not have; None as long as nothing has.
    """

    def __init__(
        self, address: BindAddress, token: str, tls: ssl.SSLContext | None, most_retry_s: float
    ) -> None:
        self._address = address
        self._token = token
        self._tls = tls
        self._most_retry_s = most_retry_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tritonpy-remote", daemon=True)
        self._first: Future[None] = Future()
        self._session: Session | None = None
        self._is_stopping = False
        self._models: dict[int, RemoteFunction] = {}
        self._retired: set[int] = set()
        self._last_reason = "it does not answer"
        self._main: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self.failure: BaseException | None = None
        self._failed = f"the connection to the server at {address.text} has failed for good"

    # From any thread.

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def wait_until_open(self, timeout_s: float) -> None:
        """Return when the server has taken the program for the first time.

        Raises:
            Unavailable: it refuses, or is not there in time.
        """
        try:
            self._first.result(timeout_s)
        except FutureTimeout:
            raise Unavailable(
                f"no server at {self._address.text} within {timeout_s:g} s: {self._last_reason}"
            ) from None

    def check(self) -> None:
        """Raise `Internal` where it has failed."""
        if (failure := self.failure) is not None:
            raise Internal(f"{self._failed}: {type(failure).__name__}: {failure}")

    def serve(self, model: RemoteFunction) -> None:
        """Have a function bound, now and whenever the server is there again."""
        self._call(self._serve, model)

    def retire(self, model: RemoteFunction) -> None:
        """Have a function bound no more; its threads end when the server has ended it."""
        self._call(self._retire, model)

    def give_up(self) -> None:
        """Have it end; does not wait."""
        self._call(self._stop)

    def stop(self) -> None:
        """End, whatever is under way."""
        self.give_up()
        if self._thread.is_alive():  # or an interrupt has come before it was
            self._thread.join()

    @property
    def is_open(self) -> bool:
        """True while the server is there."""
        return self._session is not None

    def _call(self, function: Any, *args: Any) -> None:
        with suppress(RuntimeError):  # it has been refused, and its loop is closed
            self._loop.call_soon_threadsafe(function, *args)

    # On the loop.

    def _run(self) -> None:
        try:
            self._main = self._loop.create_task(self._stay_connected())
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
            for _ in range(3):  # transports end in turns of the loop
                self._loop.run_until_complete(asyncio.sleep(0))
        except BaseException as exc:  # nobody waits for this thread: `serve` and `bind` tell
            _log.exception("%s", self._failed)
            self.failure = exc
        finally:
            self._session = None
            if not self._first.done():
                self._first.set_exception(Unavailable(f"{self._failed}: {self.failure or 'it was stopped'}"))
            for model in self._models.values():
                self._close(model, "the program has stopped")
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _stay_connected(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._is_stopping:
            session = Session(self, self._token)
            self._over = self._loop.create_future()
            try:
                async with asyncio.timeout(_OPEN_S):
                    await self._connect(session)
                    await session.opened
            except Refused as exc:
                self._note(f"the server at {self._address.text} refuses this program: {exc}")
                if not self._first.done():
                    self._first.set_exception(Unavailable(self._last_reason))
                    return
            except (OSError, TritonError, ssl.SSLError) as exc:
                self._note(str(exc) or f"it has not answered within {_OPEN_S:g} s")
                if isinstance(exc, ssl.SSLCertVerificationError) and not self._first.done():
                    self._first.set_exception(Unavailable(f"{self._address.text}: {exc}"))
                    return
            else:
                retry_s = _FIRST_RETRY_S
                self._opened(session)
                await self._over
                self._session = None
                if not self._is_stopping:
                    _log.warning("lost the server at %s: %s", self._address.text, session.reason)
                    self._end_retired()
            finally:
                session.link.close("", at_once=True)
            if not self._is_stopping:
                # Not all programs at once, when a server comes back.
                await asyncio.sleep(retry_s * random.uniform(0.5, 1))
                retry_s = min(2 * retry_s, self._most_retry_s)

    def _note(self, reason: str) -> None:
        if reason != self._last_reason and self._first.done():
            _log.warning("cannot connect: %s", reason)
        self._last_reason = reason

    async def _connect(self, session: Session) -> None:
        address = self._address
        if address.path:
            await self._loop.create_unix_connection(lambda: session.link, address.path)
            return
        tls = (self._tls or ssl.create_default_context()) if address.is_tls else None
        await self._loop.create_connection(lambda: session.link, address.host, address.port, ssl=tls)

    def _opened(self, session: Session) -> None:
        self._session = session
        if self._first.done():
            _log.info("connected to the server at %s again", self._address.text)
        else:
            self._first.set_result(None)
        for model in list(self._models.values()):
            self._bind(session, model)

    def _bind(self, session: Session, model: RemoteFunction) -> None:
        try:
            session.bind(model)
        except Exception as exc:  # of one function: the others are served
            _log.exception("model '%s' cannot be sent", model.bound.name)
            text = f"model '{model.bound.name}' cannot be sent to the server: {type(exc).__name__}: {exc}"
            self.failed(model.number, InvalidArg(text))

    def _serve(self, model: RemoteFunction) -> None:
        self._models[model.number] = model
        if self._session is not None:
            self._bind(self._session, model)

    def _retire(self, model: RemoteFunction) -> None:
        if model.number not in self._models:
            return
        model.is_served = False
        if self._session is None:
            self._close(self._models.pop(model.number), "the server is not there")
            return
        self._retired.add(model.number)
        self._session.unbind(model.number)

    def _end_retired(self) -> None:
        """What the server was to end has ended with the connection."""
        for number in self._retired & self._models.keys():
            self._close(self._models.pop(number), "the connection is lost")
        self._retired.clear()
        for model in self._models.values():
            model.is_served = False

    def _close(self, model: RemoteFunction, reason: str) -> None:
        model.is_served = False
        model.close()
        if not model.ended.done():
            model.ended.set_result(reason)
        if not model.outcome.done():
            model.outcome.set_exception(Unavailable(f"model '{model.bound.name}': {reason}"))

    def _stop(self) -> None:
        self._is_stopping = True
        if self._session is not None:
            self._session.link.close("the program stops")
        elif self._main is not None:
            self._main.cancel()

    # For the session.

    def find(self, number: int) -> RemoteFunction | None:
        """See `SessionOwner`."""
        return self._models.get(number)

    def bound(self, number: int) -> None:
        """See `SessionOwner`."""
        model = self._models.get(number)
        if model is not None and number not in self._retired:
            model.is_served = True
            if not model.outcome.done():
                model.outcome.set_result(None)

    def failed(self, number: int, error: TritonError) -> None:
        """See `SessionOwner`."""
        model = self._models.get(number)
        if model is None:
            return
        if not model.outcome.done():
            del self._models[number]
            model.outcome.set_exception(error)
            self._close(model, error.message)
        elif number not in self._retired:
            _log.error("model '%s' cannot be bound again: %s", model.bound.name, error.described())
            if error.code is ErrorCode.UNAVAILABLE:  # the server starts: it listens before it serves
                self._loop.call_later(_FIRST_RETRY_S * 5, self._try_again, model, self._session)

    def _try_again(self, model: RemoteFunction, session: Session | None) -> None:
        if session is not None and session is self._session and model.number in self._models:
            self._bind(session, model)

    def ended(self, number: int, reason: str, again: bool) -> None:
        """See `SessionOwner`."""
        model = self._models.get(number)
        if model is None:
            return
        model.is_served = False
        is_retired = number in self._retired
        if again and not is_retired:
            return  # it is bound with the next connection
        self._retired.discard(number)
        del self._models[number]
        is_replaced = any(
            other.bound.name == model.bound.name and other.number > number for other in self._models.values()
        )
        if not is_retired and not is_replaced:
            _log.warning("model '%s' is not served by this program any more: %s", model.bound.name, reason)
        self._close(model, reason)

    def over(self, session: Session) -> None:
        """See `SessionOwner`."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
