"""The same kinds of datasets with one fault each, seeded as people make them. The decorator names the codes that must be found."""

from __future__ import annotations

from benchmarks.advice.cases import Cases
from benchmarks.advice.faulty.cost import COST
from benchmarks.advice.faulty.order import ORDER
from benchmarks.advice.faulty.samples import SAMPLES
from benchmarks.advice.faulty.travel import TRAVEL

FAULTY = Cases([*TRAVEL, *SAMPLES, *ORDER, *COST])
