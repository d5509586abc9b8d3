"""A hostile accelerator for the tests: a PrivateUse1 device of torch that does everything as late, and as wrongly, as it may.

``load()`` compiles it (g++ and torch's headers) and registers it as ``"fakeaccel"``, with two devices. torch's own interface
then works as it does with CUDA: ``torch.accelerator``, ``torch.Stream``, ``torch.Event``, ``record_stream``, ``pin_memory``,
``.to(non_blocking=True)``. Where a real device gives wrong bytes once in a million batches, this one gives them at once:

- **Its memory** cannot be read by the CPU: an access ends the process. Fresh memory is filled with 0xCD, freed memory with 0xDF.
- **Streams** are queues with a thread each. An operation waits until something needs it: a host that synchronises, a device-side
  wait that a host synchronises for, an event that was queried often, or a delay that has passed. See ``FakeDevice.order``.
- **Copies** from page-locked memory read it when they run, not when they are called. Copies from other memory are synchronous.
- **The allocator** gives a freed block at once to the next allocation on the same stream, and to no other stream. Blocks with
  ``record_stream`` wait until the recorded streams have passed the free.
- **Host memory** is pinned through torch, or registered by address as ``cudaHostRegister`` does. Broken rules that a real driver
  would not report (unregistered in flight, unmapped or trimmed while registered) are listed by ``violations``.
- **Failures** are injected: no memory, no registration, no pinning, device lost.
- **A forked child** can do nothing with it; each use raises a clear error there, as with CUDA.

torch cannot forget a device: tests that load it run in processes of their own (``tests/device/conftest.py`` sees to that).
engine.h has the interface without torch, engine.cpp the streams, memory.cpp the memory, backend.cpp the side of torch.
"""

from __future__ import annotations

from tests.fake_device.build import CompilerMissing, library
from tests.fake_device.control import NAME, Counters, FakeDevice, load

__all__ = ["NAME", "CompilerMissing", "Counters", "FakeDevice", "library", "load"]
