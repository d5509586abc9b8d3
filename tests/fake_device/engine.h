// The fake accelerator without torch: streams, events, device memory, pinned and registered host memory, injected failures.
//
// One lock guards all of it. A stream is a queue with a thread that starts with its first operation. `Policy` decides when an
// operation that may run does run. Nothing is ever destroyed: threads may still run when the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fakeaccel {

constexpr int DEVICES = 2;

// Filled into memory that nobody has written yet, and into memory that was freed.
constexpr unsigned char FRESH = 0xCD;
constexpr unsigned char FREED = 0xDF;

struct ForkedChild : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct DeviceLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// PROMPT: at once. LATE: when something waits, after enough queries, or after the delay. OTHERS_FIRST: as LATE, but when a
// stream is waited for, all others run first, as far as they can. RANDOM: each wait chooses between the last two.
// TIMED: at once, and a copy takes its bytes' time on the one copy engine.
enum class Policy : int { PROMPT, LATE, OTHERS_FIRST, RANDOM, TIMED };

enum class HostMemory { PAGEABLE, PINNED, REGISTERED };

enum class Direction { TO_DEVICE, TO_HOST, ON_DEVICE };

// All are int64, in this order: the Python side reads them as one array.
struct Counters {
  int64_t copies_to_device, bytes_to_device, copies_to_host, bytes_to_host, copies_on_device, pageable_copies;
  int64_t live_blocks, live_bytes, deferred_blocks, reserved_bytes, reserved_peak_bytes;
  int64_t pinned_blocks, pinned_bytes, registrations, registered_bytes;
  int64_t registrations_made, registrations_failed, pinnings_failed, allocations_failed;
  int64_t streams, events, kernels, in_flight, engine_cpu_ns;
};

struct Stream;

// A point in a stream's queue. An event refers to the latest that it recorded.
struct Point {
  Stream* stream;
  uint64_t number;
  bool done = false;
  int queries = 0;
  int64_t done_ns = 0;
};
using PointPtr = std::shared_ptr<Point>;

// Raises ForkedChild or DeviceLost.
void check_usable();
bool in_forked_child() noexcept;

// Streams. Identifiers count from 0, the default stream, on each device.
int64_t new_stream(int device);
int64_t current_stream(int device);
int64_t exchange_stream(int device, int64_t id);
int current_device() noexcept;
int exchange_device(int device) noexcept;
bool stream_is_idle(int device, int64_t id);
void synchronize_stream(int device, int64_t id);
void synchronize_device(int device);

// Events.
PointPtr record(int device, int64_t id);
void wait(int device, int64_t id, const PointPtr& point);
bool query(const PointPtr& point);
void synchronize(const PointPtr& point);
void count_event(int change) noexcept;

// Operations on a stream. The task runs on the stream's thread.
void launch(int device, int64_t id, double takes_ms, std::function<void()> task);
void copy(int device, int64_t id, Direction direction, void* to, const void* from, size_t bytes, void* host, bool may_return_early);
HostMemory kind_of(const void* host, size_t bytes);

// Device memory. Addresses given out cannot be read; `storage_of` is where the bytes are.
void* allocate(int device, int64_t stream, size_t bytes);
void release(void* address) noexcept;
void record_use(void* address, int64_t stream);
int device_of(const void* address);
char* storage_of(const void* address);
void empty_cache();
std::pair<int64_t, int64_t> memory_left_and_limit();

// Pinned host memory that the fake itself allocates. Free memory is given out again only when no copy uses it.
void* pin(size_t bytes);
void unpin(void* address) noexcept;
bool is_pinned(const void* address) noexcept;

uint64_t checksum(const void* data, size_t bytes);

}  // namespace fakeaccel
