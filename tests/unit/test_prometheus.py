"""Prometheus: the exposition text, read back with the client's own parser."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stoker._host.process_memory import footprint
from stoker._record.recorder import Recorder
from stoker._record.run_page.summary import RecentSums, summary_of
from stoker._record.schema import LoaderRecord
from stoker.exports import prometheus
from tests.unit import records

Samples = dict[tuple[str, ...], float]


class Fixed(Recorder):
    """A recorder whose record is given."""

    def __init__(self, loader: LoaderRecord) -> None:
        super().__init__(name=loader.name, engine="stoker", executor="process", dataset="Images", sink=None)
        self.given = loader

    def record(self, *, steps: bool = True, weigh: bool = True) -> Any:
        assert not steps
        assert not weigh
        return records.run(self.given)


def scraped(*recorders: Recorder, collector: prometheus.Collector | None = None) -> Samples:
    """By the name of the metric, that of the loader, and another label if there is one."""
    registry = CollectorRegistry()
    registry.register(collector or prometheus.Collector(lambda: recorders))
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> Samples:
    return {
        (sample.name, sample.labels.pop("loader"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def fixed(waits_s: records.Waits | None = None, **changed: Any) -> Fixed:
    return Fixed(records.loader(waits_s, **changed))


def test_metrics_say_what_the_record_says() -> None:
    waits = {("fetch", 0, "io"): 0.6, ("fetch", 1, "starved"): 0.3, ("collate", 0, "io"): 0.1}
    totals = {"worker_deaths": 2, "bad_samples": 3, "stalls": 1}
    found = scraped(fixed(waits, name="train", step_s=2.0, totals=totals))
    assert found["stoker_wait_seconds_total", "train", "fetch"] == pytest.approx(0.9)
    assert found["stoker_wait_seconds_total", "train", "collate"] == pytest.approx(0.1)
    assert found["stoker_wait_cause_seconds_total", "train", "io"] == pytest.approx(0.7)
    assert found["stoker_wait_cause_seconds_total", "train", "starved"] == pytest.approx(0.3)
    assert found["stoker_batches_total", "train"] == 100
    assert found["stoker_samples_total", "train"] == 6400
    assert found["stoker_ready_ratio", "train"] == 0.5
    assert found["stoker_step_seconds_total", "train"] == pytest.approx(2.0)
    assert found["stoker_first_batch_seconds", "train"] == pytest.approx(0.05)
    assert found["stoker_window", "train"] == 4
    assert found["stoker_worker_restarts_total", "train"] == 2
    assert found["stoker_bad_samples_total", "train"] == 3
    assert found["stoker_stalls_total", "train"] == 1
    states = [found["stoker_worker_seconds_total", "train", state] for state in ("cpu", "runq", "off")]
    assert states == pytest.approx([0.6, 0.0, 5.4])  # two workers, three seconds each


def test_what_was_not_measured_has_no_sample() -> None:
    silent = fixed(workers=[], totals={"steps": 0, "first_batch_ns": None, "bytes": None, "window": None})
    names = {key[0] for key in scraped(silent)}
    assert names.isdisjoint(
        {
            "stoker_ready_ratio", "stoker_first_batch_seconds", "stoker_batch_bytes_total", "stoker_window", "stoker_queue_depth",
            "stoker_worker_seconds_total", "stoker_worker_pss_bytes", "stoker_wait_seconds_total",
        }
    )  # fmt: skip
    assert "stoker_batches_total" in names


def test_the_queue_is_that_of_the_last_batch() -> None:
    one = fixed()
    one.shown.latest = summary_of(one.given, RecentSums(), workers=2, at_ns=1, depth=3, undelivered_bytes=77)
    found = scraped(one)
    assert (found["stoker_queue_depth", "loader"], found["stoker_undelivered_bytes", "loader"]) == (3, 77)


def test_loaders_of_one_name_are_told_apart_and_names_are_given_again() -> None:
    here = [fixed(totals={"steps": steps}) for steps in (1, 2, 3)]
    collector = prometheus.Collector(lambda: here)

    def batches() -> dict[str, float]:
        found = scraped(collector=collector)
        return {key[1]: value for key, value in found.items() if key[0] == "stoker_batches_total"}

    assert batches() == {"loader": 1, "loader-2": 2, "loader-3": 3}
    del here[0]
    assert batches() == {"loader-2": 2, "loader-3": 3}
    here.append(fixed(totals={"steps": 4}))
    assert batches() == {"loader": 4, "loader-2": 2, "loader-3": 3}


def test_workers_are_weighed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []

    def count(pid: int) -> Any:
        weighed.append(pid)
        return footprint(os.getpid()) if pid == 4000 else None

    monkeypatch.setattr(prometheus, "footprint", count)
    one = fixed()
    collector = prometheus.Collector(lambda: [one])
    found = scraped(collector=collector)
    assert scraped(collector=collector) == found
    assert found["stoker_worker_pss_bytes", "loader", "0"] > 0
    assert ("stoker_worker_pss_bytes", "loader", "1") not in found, "gone, or not ours to look at"
    assert weighed == [4000, 4001]


def test_names_are_escaped() -> None:
    found = scraped(fixed(name='tr"ain\n\\'))
    assert found["stoker_batches_total", 'tr"ain\n\\'] == 100


def test_without_loaders_there_is_nothing() -> None:
    assert scraped() == {}


def test_it_is_served_until_it_is_closed_and_forked_children_let_go_of_the_port() -> None:
    one = fixed(name="served")
    with prometheus.serve(0) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert parsed(answer.read().decode())["stoker_batches_total", "served"] == 100
        child = os.fork()
        if child == 0:
            os._exit(0 if server._server.socket.fileno() == -1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", server.port))
        taken.listen()  # refused as long as anybody else listens there
    one.close()


def connected(server: prometheus.Server) -> socket.socket:
    """Someone who asks for nothing."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_connections_beyond_a_few_are_hung_up_on() -> None:
    """Another user of the machine could take all descriptors of the training process."""
    with prometheus.serve(0) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        silent = [connected(server) for _ in range(prometheus._MOST_SCRAPES)]
        with connected(server) as refused:
            assert refused.recv(1) == b""
        for each in silent:
            each.close()
        ends_s = time.monotonic() + 30
        status = None
        while status is None and time.monotonic() < ends_s:  # its threads see the end one by one
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
                status = answer.status
        assert status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metr"])
def test_who_does_not_ask_to_the_end_is_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """However often a byte comes: the time is that of the whole connection."""
    monkeypatch.setattr(prometheus, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(prometheus._MetricsHandler, "timeout", None)
    with prometheus.serve(0) as server, connected(server) as slow:
        slow.sendall(sent)
        assert slow.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_without_the_client_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "stoker.exports.prometheus")
    with pytest.raises(ImportError, match=r"pip install prometheus-client"):
        importlib.import_module("stoker.exports.prometheus")


def test_every_metric_is_in_the_documentation() -> None:
    one = fixed({("fetch", 0, "io"): 1.0})
    one.shown.latest = summary_of(one.given, RecentSums(), workers=2, at_ns=1, depth=3, undelivered_bytes=77)
    text = (Path(__file__).parents[2] / "docs" / "exports.md").read_text()
    assert [name for name in sorted({key[0] for key in scraped(one)}) if f"`{name}`" not in text] == []


def test_a_counter_stays_when_the_blame_moves_to_another_cause() -> None:
    recorder = fixed({("fetch", 0, "unknown"): 0.6})
    collector = prometheus.Collector(lambda: [recorder])
    name = "stoker_wait_cause_seconds_total"
    assert scraped(collector=collector)[name, recorder.name, "unknown"] == pytest.approx(0.6)
    recorder.given = records.loader({("fetch", 0, "io"): 0.7})
    found = scraped(collector=collector)
    assert found[name, recorder.name, "unknown"] == pytest.approx(0.6)
    assert found[name, recorder.name, "io"] == pytest.approx(0.7)
