"""Probes that ended without a fact because of the dataset: they hung, died or took too much memory."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._tools.doctor.facts.samples import ProbeFailure as ProbeFailure


@dataclass(frozen=True, slots=True)
class ProbeFailures:
    """By the name of the probe, in the order in which they happened. Empty when all probes came back."""

    all: tuple[tuple[str, ProbeFailure], ...] = ()
