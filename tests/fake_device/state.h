// What engine.cpp (streams), memory.cpp (memory) and controls.cpp (the tests' side) share. All of it is guarded by `State::mutex`.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine.h"

namespace fakeaccel {

extern const char* const LOST;

// One entry of a stream's queue: a task, a wait for a point of another stream, or a point.
struct Operation {
  uint64_t number = 0;
  int64_t due_ns = 0;
  double takes_ms = 0;
  size_t bytes = 0;
  std::function<void()> task;
  PointPtr waits_for;
  PointPtr point;
  void* host = nullptr;  // the begin of the pinned block or registration that it uses
};

struct Stream {
  int device;
  int64_t id;
  std::deque<Operation> queue{};
  uint64_t last_number = 0;
  uint64_t completed = 0;
  uint64_t asked_through = 0;
  int queries = 0;
  bool runs = false;
  bool has_thread = false;
  clockid_t cpu_clock = 0;
  std::condition_variable has_work{};  // its thread waits for this
};

// A piece of device memory: `address` cannot be read, the bytes are at `storage`.
struct Block {
  char* address;
  char* storage;
  size_t size;
  int device;
  int64_t stream = 0;
  size_t asked_bytes = 0;
  bool live = false;
  std::set<int64_t> used_by{};
  std::vector<PointPtr> pending{};
};

// Pinned memory of the fake's own.
struct HostBlock {
  size_t size;
  bool live = true;
  int uses = 0;
};

struct Registration {
  size_t size;
  std::string mapping;  // what was mapped there, as the kernel names it
  int uses = 0;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // for threads of the host; `tell_all` wakes these and those of the streams
  std::vector<Stream*> streams;
  Stream* last_in_line = nullptr;

  Policy policy = Policy::LATE;
  int64_t delay_ns = 50'000'000;
  int queries = 16;
  std::mt19937_64 random{0};
  double bytes_per_s = 4e9;
  bool move_bytes = true;
  int64_t engine_free_ns = 0;

  std::map<const char*, Block*> blocks;
  std::map<std::pair<int, int64_t>, std::multimap<size_t, Block*>> free_blocks;  // per device and stream
  std::vector<Block*> deferred;
  std::multimap<size_t, Block*> given_back;
  int64_t limit_bytes = int64_t{8} << 30;

  std::map<char*, HostBlock> pinned;
  std::map<char*, Registration> registrations;
  std::vector<std::string> violations;

  int64_t registrations_to_fail = 0;
  int64_t pinnings_to_fail = 0;
  int64_t copies_until_lost = 0;
  volatile bool lost = false;
  pid_t owner_pid = getpid();

  Counters counters{};
};

using Lock = std::unique_lock<std::mutex>;

State& state();
int64_t now_ns();
Stream& stream_of(int device, int64_t id);
uint64_t enqueue(Stream& stream, Operation operation);
PointPtr enqueue_point(Stream& stream);
void tell_all(State& s);

// Host memory that an operation reads or writes: not free, and not to be unregistered, until the operation has run.
HostMemory kind_of_locked(State& s, const void* host, size_t bytes);
void begin_host_use(State& s, Operation& operation, void* host, size_t bytes);
void finish_host_use(State& s, const Operation& operation);
bool registration_is_intact(const void* host, size_t bytes);

}  // namespace fakeaccel
