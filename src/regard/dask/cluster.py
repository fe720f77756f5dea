"""Where tasks run: in this process, or on the workers of a cluster of Dask."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from regard._utils.errors import RegardError
from regard._utils.memory import gigabytes
from regard.dask.preload import import_for_tasks
from regard.functional.native.loader import default_num_threads

_IN_FLIGHT = 10_000  # tasks that a scheduler has at a time
_STARTS = 3  # of the processes of a machine, where one ends before it is a worker
_PACKAGES = ("dask", "distributed", "cloudpickle", "msgpack", "numpy", "pandas", "pyarrow", "tokenizers")

_LEAST_MEMORY = 400_000_000  # bytes: Python, Dask and the libraries of a worker take 300 MB
_FIRST_WAIT = 30.0  # seconds for the answer of a scheduler that was never there
_LOOK = 5.0  # seconds after which a run without results looks whether there are workers
_LOST_AFTER = 30.0  # seconds that Dask waits for a process to start again before it gives it up

_PAGES = ["distributed.http.scheduler.info", "distributed.http.statics"]  # that the dashboard has besides its own

Item = TypeVar("Item")


class SchedulerLostError(Exception):
    """The connection to the scheduler ended; what it had not returned is lost."""


class Workers(Protocol):
    """What runs tasks."""

    @property
    def count(self) -> int:
        """The number of workers now; at least 1."""

    def are_there(self) -> bool:
        """Tell whether they can begin now; otherwise `map` waits for them."""

    @property
    def dashboard(self) -> str | None:
        """The address of Dask's dashboard; None where there is none."""

    def map(self, name: str, function: Callable[[Item], Any], items: Sequence[Item]) -> Iterator[tuple[Item, Any]]:
        """Yield each item with the result of `function`, or the error that it ended with, in any order."""

    def reconnect(self) -> None:
        """Wait until there is a scheduler again."""


class ThisProcess:
    """Runs tasks one after the other."""

    @property
    def count(self) -> int:
        """One."""
        return 1

    def are_there(self) -> bool:
        """Return True."""
        return True

    @property
    def dashboard(self) -> None:
        """None."""
        return None

    def map(self, name: str, function: Callable[[Item], Any], items: Sequence[Item]) -> Iterator[tuple[Item, Any]]:
        """Yield each item with its result."""
        del name  # for a dashboard
        for item in items:
            yield item, _outcome(function, item)

    def reconnect(self) -> None:
        """Do nothing."""


def _outcome(function: Callable[[Item], Any], item: Item) -> Any:
    try:
        return function(item)
    except RegardError as error:
        return error


class Cluster:
    """The workers of a scheduler, which it connects to in the background.

    Parameters
    ----------
    connect : function
        Returns a client; called in another thread, and again when the connection is lost.
    wait : float
        Seconds to wait for a scheduler that went away, and for a worker where there is none.
    has_dashboard : bool
    """

    def __init__(self, connect: Callable[[], Any], wait: float, *, has_dashboard: bool = True) -> None:
        self._connect, self._wait, self._was_there = connect, wait, False
        self._has_dashboard = has_dashboard
        self._connecting = self._begin()

    @property
    def client(self) -> Any:
        """The connection, once workers are there."""
        return self._connecting.result()[0]

    @property
    def memory_limit(self) -> int:
        """Bytes of each worker; 0 where there is no limit."""
        return self._connecting.result()[1]

    def are_there(self) -> bool:
        """Tell whether workers are there, or none will be."""
        return self._connecting.done()

    @property
    def count(self) -> int:
        """The number of workers now; at least 1."""
        return max(1, len(self._workers()))

    def _workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    @property
    def dashboard(self) -> str | None:
        """The address of Dask's dashboard; None without bokeh, or where it is off."""
        if not self._has_dashboard:
            return None
        try:
            import bokeh  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
        except ImportError:
            return None
        return str(self.client.dashboard_link)

    def map(self, name: str, function: Callable[[Item], Any], items: Sequence[Item]) -> Iterator[tuple[Item, Any]]:
        """Yield each item with its result or error. The dashboard shows the tasks by `name`."""
        from distributed import CancelledError

        token, waiting, of_future = secrets.token_hex(4), iter(items), {}
        numbers, done = itertools.count(), SimpleQueue[Any]()

        def submit(items: Iterable[Item]) -> None:
            for item in items:
                key = f"{name}-{next(numbers):07d}-{token}"
                future = self.client.submit(function, item, key=key, pure=False)
                of_future[future] = item
                future.add_done_callback(done.put)

        try:
            submit(itertools.islice(waiting, _IN_FLIGHT))
            while of_future:
                future = self._patiently(done.get)
                item = of_future.pop(future)
                if future.status == "finished":  # its worker may have died since: it is computed again
                    yield item, self._patiently(future.result)
                elif future.status == "error":
                    yield item, future.exception()
                elif future.status == "lost":  # with its worker; those of other workers still run
                    submit([item])
                else:  # cancelled with its scheduler
                    raise SchedulerLostError
                future.release()
                submit(itertools.islice(waiting, 1))
        except (OSError, CancelledError) as error:  # CommClosedError is an OSError
            raise SchedulerLostError from error
        finally:
            with suppress(Exception):
                self.client.cancel(list(of_future), force=True)

    def _patiently(self, get: Callable[..., Any]) -> Any:
        """Return what a function with a timeout returns at last; an error if there are no workers for too long."""
        seen = time.monotonic()
        while True:
            with suppress(Empty, TimeoutError):
                return get(timeout=min(_LOOK, self._wait))
            if self._workers():
                seen = time.monotonic()
            elif time.monotonic() - seen >= self._wait:
                raise RegardError(f"no worker of Dask answers within {self._wait:g} s: start the workers")

    def reconnect(self) -> None:
        """Connect again, for as long as the scheduler may take to come back."""
        with suppress(Exception):
            self.client.close(timeout=1)
        self._connecting = self._begin()
        self._connecting.result()

    def _begin(self) -> Future[tuple[Any, int]]:
        thread = ThreadPoolExecutor(1, "regard-connect")
        try:
            return thread.submit(self._connected)
        finally:
            thread.shutdown(wait=False)

    def _connected(self) -> tuple[Any, int]:
        """Return a client and the memory of a worker."""
        patience = self._wait if self._was_there else min(self._wait, _FIRST_WAIT)
        start = time.monotonic()
        while True:
            try:
                client = self._connect()
                self._was_there, patience = True, self._wait
                client.wait_for_workers(1, timeout=max(1.0, start + patience - time.monotonic()))
                check_versions(client.get_versions(packages=list(_PACKAGES)))
                _check_regard(client.run(_prepare, on_error="return"))
                limits = [one["memory_limit"] for one in client.scheduler_info(n_workers=-1)["workers"].values()]
                return client, min(limits, default=0)
            except (OSError, TimeoutError) as error:
                if time.monotonic() - start >= patience:
                    reason = error or "start the workers"
                    raise RegardError(f"no worker of Dask answers within {patience:g} s: {reason}") from error
                time.sleep(0.5)


def check_versions(reported: dict[str, Any]) -> None:
    """Raise `RegardError` if a worker has another version of Python or of a package than the client."""

    def versions(one: Any) -> dict[str, str]:
        python = str(one["host"]["python"]).split(".")[:2]
        packages = {name: str(one["packages"].get(name)) for name in _PACKAGES}
        return {"Python": ".".join(python), **packages}

    here = versions(reported["client"])
    others = {"the scheduler": reported["scheduler"], **{f"worker {x}": one for x, one in reported["workers"].items()}}
    for place, one in others.items():
        there = versions(one)
        names = ("Python", "dask", "distributed", "cloudpickle", "msgpack") if place == "the scheduler" else here
        if different := [name for name in names if there[name] != here[name]]:
            listed = ", ".join(f"{name} {there[name]} (here {here[name]})" for name in different)
            raise RegardError(f"{place} has {listed}: install the same versions")


def regard_version() -> str:
    """Return the version of regard in this process."""
    from regard import _version

    return _version.__version__


def _prepare() -> str:
    """Import what tasks need, while the client has other work; return the version of regard in this process."""
    import_for_tasks()
    return regard_version()


def _check_regard(versions: dict[str, Any]) -> None:
    """Raise `RegardError` if a worker has another version of regard, or none; OSError if one has gone away."""
    for address, version in versions.items():
        if isinstance(version, OSError):
            raise version
        if isinstance(version, BaseException):
            raise RegardError(f"worker {address} has no regard.dask ({version}): pip install 'regard[dask]' there")
        if version != regard_version():
            raise RegardError(
                f"worker {address} has regard {version} (here {regard_version()}): install the same versions"
            )


def _check_memory(memory: str | None) -> None:
    """Raise `RegardError` unless it is an amount with which a worker can start."""
    from dask.utils import parse_bytes

    try:
        limit = _LEAST_MEMORY if memory is None else parse_bytes(memory)
    except ValueError:
        raise RegardError(f"the memory of a worker is an amount such as 2GB, got {memory!r}") from None
    if limit < _LEAST_MEMORY:
        raise RegardError(f"a worker needs {gigabytes(_LEAST_MEMORY)} to start, and --memory {memory} is less")


@contextmanager
def start_workers(
    count: int, memory: str | None = None, threads: int | None = None, *, dashboard: bool = False
) -> Iterator[Cluster]:
    """Start a cluster of processes on this machine, which share its threads unless those of each are given.

    They listen on 127.0.0.1 alone, and take nothing without the certificate that is made for this run: who could send a
    task could run any code as this user. The `dashboard` has no such lock: every user of the machine can look at it.

    They start in the background. The profiler of Dask, which looks at each worker a hundred times a second, is off; and
    memory is returned to the system as in other processes, where Dask's own setting would return any 64 KB.
    """
    from distributed import Client, LocalCluster, Security  # not in the background, beside other imports

    import dask

    _check_memory(memory)
    try:
        security = Security.temporary()
    except ImportError:
        raise RegardError("processes need the package cryptography: pip install 'regard[dask]'") from None
    threads = threads or max(1, default_num_threads() // count)
    settings = {
        "distributed.comm.timeouts.connect": "60s",
        "distributed.scheduler.http.routes": _PAGES if dashboard else [],
        "distributed.worker.http.routes": [],
        "distributed.worker.preload": ["regard.dask.preload"],
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
        "distributed.deploy.lost-worker-timeout": _LOST_AFTER,
        "distributed.nanny.pre-spawn-environ": {"MALLOC_ARENA_MAX": 1, "OPENBLAS_NUM_THREADS": 1},
    }
    with dask.config.set(settings), ExitStack() as processes:

        @functools.cache
        def local() -> Any:
            for _ in range(_STARTS):
                with suppress(RuntimeError):  # a process has ended before it was a worker
                    started = processes.enter_context(
                        LocalCluster(
                            n_workers=count,
                            threads_per_worker=threads,
                            processes=True,
                            memory_limit=memory or "auto",
                            security=security,
                            dashboard_address="127.0.0.1:0",
                            worker_dashboard_address="127.0.0.1:0",
                            scheduler_kwargs={"dashboard": dashboard},
                            silence_logs="CRITICAL",
                        )
                    )
                    started.loop.add_callback(_keep, started, count)
                    return started
            raise RegardError("processes of workers end while they start: give them more memory")

        yield from _closing(Cluster(lambda: Client(local()), 120.0, has_dashboard=dashboard))


async def _keep(cluster: Any, count: int) -> None:
    """Start others in place of workers that Dask has given up, because they were not back in time or did not start."""
    while cluster.status.name == "running":
        for name, nanny in list(cluster.workers.items()):
            if nanny.status.name in ("closed", "failed"):
                del cluster.workers[name]
        cluster.scale(count)
        await asyncio.sleep(1)


@contextmanager
def use_scheduler(address: str, wait: float = 300.0) -> Iterator[Cluster]:
    """Connect to a scheduler that is there; it stays."""
    from distributed import Client
    from distributed.comm import get_address_host_port

    try:
        if not address.startswith("ucx://"):  # whose package reads it
            get_address_host_port(address)
    except ValueError as error:
        raise RegardError(f"{address} is not an address of a scheduler, such as tcp://host:8786: {error}") from error
    yield from _closing(Cluster(lambda: Client(address, timeout=5), wait))


def _closing(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        with suppress(Exception):
            cluster.client.close(timeout=5)


def worker_memory(cluster: Workers) -> str:
    """Return the memory that each worker may take, in words."""
    if not isinstance(cluster, Cluster):
        return "that of this process"
    return gigabytes(cluster.memory_limit) if cluster.memory_limit else "no limit"


def scheduler_address(address: str | None) -> str | None:
    """Return the scheduler that was asked for, else that of DASK_SCHEDULER_ADDRESS."""
    return address or os.environ.get("DASK_SCHEDULER_ADDRESS") or None
