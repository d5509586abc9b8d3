// What the tests set and read, as C functions for ctypes.

#include <time.h>

#include <cstring>

#include "state.h"

using namespace fakeaccel;

extern "C" {

void fakeaccel_order(int policy, double delay_s, int queries, uint64_t seed) {
  State& s = state();
  Lock lock(s.mutex);
  s.policy = static_cast<Policy>(policy);
  s.delay_ns = static_cast<int64_t>(delay_s * 1e9);
  s.queries = queries;
  s.random.seed(seed);
  tell_all(s);
}

void fakeaccel_timed(double bytes_per_s, int move_bytes) {
  State& s = state();
  Lock lock(s.mutex);
  s.policy = Policy::TIMED;
  s.bytes_per_s = bytes_per_s;
  s.move_bytes = move_bytes != 0;
  tell_all(s);
}

// 0 or the error: 1 forked child, 2 lost.
int fakeaccel_occupy(double ms) {
  try {
    int device = current_device();
    launch(device, current_stream(device), ms, nullptr);
    return 0;
  } catch (const ForkedChild&) {
    return 1;
  } catch (const DeviceLost&) {
    return 2;
  }
}

void fakeaccel_limit_memory(int64_t bytes) {
  Lock lock(state().mutex);
  state().limit_bytes = bytes;
}

// How many of the next are to fail; -1: all.
void fakeaccel_fail_registrations(int64_t count) {
  Lock lock(state().mutex);
  state().registrations_to_fail = count;
}

void fakeaccel_fail_pinning(int64_t count) {
  Lock lock(state().mutex);
  state().pinnings_to_fail = count;
}

void fakeaccel_lose(int64_t after_copies) {
  State& s = state();
  Lock lock(s.mutex);
  s.copies_until_lost = after_copies;
  s.lost = after_copies == 0;
  tell_all(s);
}

int fakeaccel_forked() { return in_forked_child(); }

void fakeaccel_counters(int64_t* into) {
  State& s = state();
  Lock lock(s.mutex);
  s.counters.deferred_blocks = static_cast<int64_t>(s.deferred.size());
  s.counters.engine_cpu_ns = 0;
  for (const Stream* stream : s.streams) {
    timespec used{};
    if (stream->has_thread && clock_gettime(stream->cpu_clock, &used) == 0)
      s.counters.engine_cpu_ns += used.tv_sec * 1'000'000'000LL + used.tv_nsec;
  }
  memcpy(into, &s.counters, sizeof(Counters));
}

// The size of all texts, each ended by a newline, and as much of them as fits.
size_t fakeaccel_violations(char* into, size_t size) {
  State& s = state();
  Lock lock(s.mutex);
  std::string all;
  for (const std::string& text : s.violations) all += text + "\n";
  memcpy(into, all.data(), std::min(size, all.size()));
  return all.size();
}

// How many there are, and pairs of address and size, as many as fit.
size_t fakeaccel_registered(uint64_t* into, size_t pairs) {
  State& s = state();
  Lock lock(s.mutex);
  size_t at = 0;
  for (auto& [address, registration] : s.registrations) {
    if (at == pairs) break;
    into[2 * at] = reinterpret_cast<uint64_t>(address);
    into[2 * at++ + 1] = registration.size;
  }
  return s.registrations.size();
}
}
