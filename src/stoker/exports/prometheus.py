"""Exports every live loader of this process as Prometheus metrics. ``pip install prometheus-client``.

    from stoker.exports import prometheus
    prometheus.serve(9464)

A scrape runs on a thread of its own and reads the sums that recorders keep anyway: nothing is done per batch, and nothing when
nobody scrapes. What was not measured has no sample; it is never 0.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from stoker._host.process_memory import footprint
from stoker._record import recorder as recorders
from stoker._record.live_objects import LiveObjects
from stoker._record.recorder import Recorder
from stoker._record.schema import LoaderRecord

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import ThreadingWSGIServer
    from prometheus_client.registry import Collector as _Base
except ImportError as error:
    raise ImportError(
        "stoker.exports.prometheus needs prometheus_client: pip install prometheus-client"
    ) from error

_WEIGH_S = 15.0
"""Memory of workers is weighed at most this often: it takes the kernel 5 to 10 ms for each."""

_MOST_SCRAPES = 8
"""At one time. Every user of the machine can connect, and a connection takes a thread and a descriptor of the training process."""
_PATIENCE_S = 10.0
"""Whoever connects has so long to ask, and to take the answer."""

_Live = Callable[[], Sequence[Recorder]]
_servers: LiveObjects[Server] = LiveObjects()


class Collector(_Base):
    """For a registry of one's own: ``REGISTRY.register(Collector())``. ``collect`` is called on the scraper's thread.

    The label ``loader`` is the loader's name. When several that live at the same time share one, the later are called
    ``name-2``, ``name-3``…; the names of those that are gone are given again, and their counters begin anew.
    """

    def __init__(self, live: _Live = recorders.live) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._labels: weakref.WeakKeyDictionary[Recorder, str] = weakref.WeakKeyDictionary()
        self._exported: weakref.WeakKeyDictionary[Recorder, dict[tuple[str, str], int]] = (
            weakref.WeakKeyDictionary()
        )
        self._weights: dict[int, int] = {}
        self._weighed_s = -_WEIGH_S

    def collect(self) -> Iterator[Metric]:
        """All metrics of all live loaders."""
        with self._lock:  # scrapes may overlap
            seen = [(self._label(each), each) for each in self._live()]
            told = [(label, each, each.record(steps=False, weigh=False).loaders[0]) for label, each in seen]
            self._weigh([loader for _, _, loader in told])
        families = _Families()
        for label, recorder, loader in told:
            _totals(families, label, loader)
            _blame(families, label, loader, self._exported.setdefault(recorder, {}))
            _cache(families, label, loader)
            _workers(families, label, loader, self._weights)
            _queue(families, label, recorder)
        yield from families.all()

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would collect once to learn the names, which differ with what is measured."""
        return []

    def _label(self, recorder: Recorder) -> str:
        found = self._labels.get(recorder)
        if found is None:
            taken = {self._labels[each] for each in self._live() if each in self._labels}
            found, number = recorder.name, 1
            while found in taken:
                number += 1
                found = f"{recorder.name}-{number}"
            self._labels[recorder] = found
        return found

    def _weigh(self, loaders: Sequence[LoaderRecord]) -> None:
        now_s = time.monotonic()
        if now_s - self._weighed_s < _WEIGH_S:
            return
        self._weighed_s = now_s
        sizes = {each.pid: footprint(each.pid) for loader in loaders for each in loader.workers if each.pid}
        self._weights = {pid: size.pss_bytes for pid, size in sizes.items() if size is not None}


class _MetricsHandler(WSGIRequestHandler):
    """Answers one request, and logs nothing: stderr is the training script's."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _MetricsServer(ThreadingWSGIServer):
    """Answers on daemon threads, a few at a time: it hangs up on whoever comes beyond that."""

    def __init__(self, *given: Any) -> None:
        self._room = threading.Semaphore(_MOST_SCRAPES)
        self._ends_s: dict[Any, float] = {}
        """When a connection is cut off. One who sends a byte now and then is never silent for long."""
        super().__init__(*given)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._room.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._ends_s[request] = time.monotonic() + _PATIENCE_S
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was to be had
            self._over(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._over(request)

    def _over(self, request: Any) -> None:
        del self._ends_s[request]
        self._room.release()

    def service_actions(self) -> None:
        """Cut off whoever took too long. The server's loop calls it twice a second."""
        now_s = time.monotonic()
        for request, ends_s in self._ends_s.copy().items():
            if now_s > ends_s:
                with suppress(OSError):  # closed meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: somebody hung up, or never asked."""


class Server:
    """What ``serve`` started."""

    def __init__(self, server: Any, thread: threading.Thread) -> None:
        self._server, self._thread = server, thread
        self._pid = os.getpid()
        self.port: int = server.server_port
        _servers.add(self)

    def close(self) -> None:
        """Stop answering and give the port back. Idempotent."""
        if self._pid == os.getpid():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(port: int = 9464, addr: str = "127.0.0.1") -> Server:
    """Answer Prometheus at ``http://addr:port/metrics`` from a daemon thread, for as long as the process lives.

    Only stoker's metrics are served; ``Collector`` adds them to a registry that is served already. Port 0 takes any free one,
    which ``Server.port`` tells. Raises OSError when the port is taken: each rank needs one of its own.
    """
    registry = CollectorRegistry()
    registry.register(Collector())
    family, *_ = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    kind = type("_MetricsServer", (_MetricsServer,), {"address_family": family})
    server: Any = make_server(addr, port, make_wsgi_app(registry), kind, _MetricsHandler)
    thread = threading.Thread(target=server.serve_forever, name="stoker-metrics", daemon=True)
    thread.start()
    return Server(server, thread)


def _let_go() -> None:
    """In a forked child, a worker say: the port is its parent's, who may close it and open it again."""
    for server in _servers.all():
        server.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class _Families:
    """Metrics by name, made when the first sample comes."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def counter(self, name: str, about: str, value: float | None, **labels: str) -> None:
        self._add(CounterMetricFamily, name, about, value, labels)

    def gauge(self, name: str, about: str, value: float | None, **labels: str) -> None:
        self._add(GaugeMetricFamily, name, about, value, labels)

    def all(self) -> Iterable[Metric]:
        return list(self._found.values())

    def _add(self, kind: Any, name: str, about: str, value: float | None, labels: dict[str, str]) -> None:
        if value is None:
            return
        if name not in self._found:
            self._found[name] = kind(f"stoker_{name}", about, labels=list(labels))
        self._found[name].add_metric(list(labels.values()), value)


def _totals(families: _Families, label: str, loader: LoaderRecord) -> None:
    totals = loader.totals
    add, one = families.counter, {"loader": label}
    add("batches", "Batches handed over.", totals.steps, **one)
    add("samples", "Rows of those batches.", totals.rows, **one)
    add("ready_batches", "Batches that were there before they were asked for.", totals.ready, **one)
    add("batch_bytes", "Bytes of those batches.", totals.bytes, **one)
    add("step_seconds", "Time between batches: what the training loop did.", totals.step_ns / 1e9, **one)
    add("epochs", "Calls of iter().", totals.epochs, **one)
    add("worker_restarts", "Workers that died.", totals.worker_deaths, **one)
    add("stalls", "Waits that lasted so long that a warning was given.", totals.stalls, **one)
    add("bad_samples", "Samples that raised, were None or killed their worker.", totals.bad_samples, **one)
    families.gauge(
        "ready_ratio",
        "Share of batches that were there before they were asked for, since the loader was made.",
        totals.ready / totals.steps if totals.steps else None,
        **one,
    )
    families.gauge(
        "first_batch_seconds",
        "From the first iter() to the first batch.",
        None if totals.first_batch_ns is None else totals.first_batch_ns / 1e9,
        **one,
    )
    families.gauge("window", "Batches that may be planned and not taken.", totals.window, **one)


def _blame(families: _Families, label: str, loader: LoaderRecord, told: dict[tuple[str, str], int]) -> None:
    """Add the counters of blame. The cause of the last batches may change; a counter then stays until it is overtaken."""
    for what, name, about in (
        ("stage", "wait_seconds", "Time the consumer waited, by the stage it was spent in."),
        ("cause", "wait_cause_seconds", "The same time, by its cause."),
    ):
        sums: dict[str, int] = {}
        for part in loader.blame:
            key = getattr(part, what)
            sums[key] = sums.get(key, 0) + part.ns
        for key, ns in sums.items():
            told[what, key] = max(ns, told.get((what, key), 0))
        for kind, key in told:
            if kind == what:
                families.counter(name, about, told[kind, key] / 1e9, loader=label, **{what: key})


def _cache(families: _Families, label: str, loader: LoaderRecord) -> None:
    use = loader.cache
    if use is None:
        return
    add, one = families.counter, {"loader": label}
    add("cache_hits", "Samples that came from a sample cache.", use.hits, **one)
    add("cache_misses", "Samples that were made because a sample cache did not have them.", use.misses, **one)
    add("cache_hit_bytes", "Bytes of those that it had.", use.hit_bytes, **one)
    add("cache_stored_bytes", "Bytes that workers put into sample caches.", use.stored_bytes, **one)
    add("cache_saved_seconds", "Worker time that hits saved.", use.saved_ns / 1e9, **one)
    add("cache_passed", "Samples that could not be stored, or found no room.", use.passed, **one)


def _workers(families: _Families, label: str, loader: LoaderRecord, weights: dict[int, int]) -> None:
    metered = [worker for worker in loader.workers if worker.metered_ns]
    if metered:
        about = "Workers' time at work: on a CPU, ready without one, and neither."
        for state in ("cpu", "runq", "off"):
            ns = sum(getattr(worker, f"{state}_ns") for worker in metered)
            families.counter("worker_seconds", about, ns / 1e9, loader=label, state=state)
    for worker in loader.workers:
        families.gauge(
            "worker_pss_bytes",
            f"Proportional share of memory of a worker process, weighed every {_WEIGH_S:.0f} s at most.",
            weights.get(worker.pid) if worker.pid else None,
            loader=label,
            worker=str(worker.worker),
        )


def _queue(families: _Families, label: str, recorder: Recorder) -> None:
    summary = recorder.shown.latest
    if summary is not None:
        about = "Batches that were made and not taken when the last one was asked for."
        families.gauge("queue_depth", about, summary["depth"], loader=label)
        families.gauge(
            "undelivered_bytes", "Bytes of those batches.", summary["undelivered_bytes"], loader=label
        )
