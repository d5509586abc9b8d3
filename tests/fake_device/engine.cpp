#include "engine.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "state.h"

namespace fakeaccel {

namespace {

thread_local int device_now = 0;
thread_local int64_t stream_now[DEVICES] = {};

const char* const IN_CHILD =
    "Cannot use fakeaccel in a forked child: the device belongs to the parent process. Start the child with 'spawn', "
    "or use the device in the parent only.";

// Whether the head of a queue may run as far as events are concerned.
bool is_ready(const Stream& stream) { return !stream.queue.empty() && (!stream.queue.front().waits_for || stream.queue.front().waits_for->done); }

bool is_asked_for(const Stream& stream, int64_t now) {
  const Operation& head = stream.queue.front();
  return stream.asked_through >= head.number || now >= head.due_ns;
}

bool may_run(const State& s, const Stream& stream, int64_t now) {
  if (stream.queue.empty()) return false;
  if (s.lost) return true;
  if (!is_ready(stream)) return false;
  if (s.policy == Policy::PROMPT || s.policy == Policy::TIMED) return true;
  if (!is_asked_for(stream, now)) return false;
  if (s.last_in_line != &stream) return true;
  return std::none_of(s.streams.begin(), s.streams.end(), [&](const Stream* other) {
    return other != &stream && (other->runs || (is_ready(*other) && is_asked_for(*other, now)));
  });
}

// Ask for everything up to a number, and for what other streams must have done before.
void ask(Stream& stream, uint64_t number) {
  if (stream.asked_through >= number) return;
  stream.asked_through = number;
  for (const Operation& operation : stream.queue) {
    if (operation.number > number) break;
    if (operation.waits_for && !operation.waits_for->done) ask(*operation.waits_for->stream, operation.waits_for->number);
  }
}

void ask_and_wait(Lock& lock, Stream& stream, uint64_t number) {
  State& s = state();
  if (stream.completed >= number) return;
  bool others = s.policy == Policy::OTHERS_FIRST || (s.policy == Policy::RANDOM && (s.random() & 1));
  ask(stream, number);
  if (others) {
    s.last_in_line = &stream;
    for (Stream* other : s.streams)
      if (other != &stream) ask(*other, other->last_number);
  }
  tell_all(s);
  s.changed.wait(lock, [&] { return stream.completed >= number; });
  if (s.last_in_line == &stream) s.last_in_line = nullptr;
  if (s.lost) throw DeviceLost(LOST);
}

// In TIMED: when the copy engine will have moved this. The engine moves one copy after another.
int64_t reserve_engine(State& s, size_t bytes) {
  int64_t begin = std::max(now_ns(), s.engine_free_ns);
  s.engine_free_ns = begin + static_cast<int64_t>(static_cast<double>(bytes) / s.bytes_per_s * 1e9);
  return s.engine_free_ns;
}

void sleep_until(int64_t ns) {
  timespec until{ns / 1'000'000'000, ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

void run(Lock& lock, Stream& stream) {
  State& s = state();
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.runs = true;
  bool timed = s.policy == Policy::TIMED;
  if (!s.lost && (operation.task || operation.takes_ms > 0)) {
    bool moves = !(timed && operation.bytes && !s.move_bytes);
    int64_t end = now_ns() + static_cast<int64_t>(operation.takes_ms * 1e6);
    if (timed && operation.bytes) end = reserve_engine(s, operation.bytes);
    lock.unlock();
    if (operation.task && moves) operation.task();
    if (end > now_ns()) sleep_until(end);
    lock.lock();
    if (operation.bytes && s.copies_until_lost > 0 && --s.copies_until_lost == 0) s.lost = true;
  }
  stream.runs = false;
  stream.completed = operation.number;
  if (operation.point) {
    operation.point->done = true;
    operation.point->done_ns = now_ns();
  }
  if (operation.host) finish_host_use(s, operation);
  --s.counters.in_flight;
  tell_all(s);
}

// The time at which the first of all heads is due by itself, so that a thread can sleep until then.
int64_t next_due(const State& s) {
  int64_t due = now_ns() + 1'000'000'000;
  for (const Stream* stream : s.streams)
    if (!stream->queue.empty()) due = std::min(due, stream->queue.front().due_ns);
  return due;
}

void serve(Stream& stream) {
  prctl(PR_SET_TIMERSLACK, 1);
  State& s = state();
  Lock lock(s.mutex);
  while (true) {
    if (may_run(s, stream, now_ns()))
      run(lock, stream);
    else if (stream.queue.empty() || s.policy == Policy::PROMPT || s.policy == Policy::TIMED || stream.asked_through >= stream.queue.front().number)
      stream.has_work.wait(lock);
    else
      stream.has_work.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(next_due(s) - now_ns(), 1000)));
  }
}

}  // namespace

const char* const LOST = "fakeaccel error: the device is lost (injected); every further use fails";

State& state() {
  static State* s = [] {
    auto* made = new State();
    for (int device = 0; device < DEVICES; ++device) made->streams.push_back(new Stream{device, 0});
    made->counters.streams = DEVICES;
    return made;
  }();
  return *s;
}

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// By the process's number: a handler of fork does not run for everything that makes a process.
bool in_forked_child() noexcept { return getpid() != state().owner_pid; }

void check_usable() {
  if (in_forked_child()) throw ForkedChild(IN_CHILD);
  if (state().lost) throw DeviceLost(LOST);
}

Stream& stream_of(int device, int64_t id) {
  for (Stream* stream : state().streams)
    if (stream->device == device && stream->id == id) return *stream;
  throw std::runtime_error("fakeaccel error: there is no stream " + std::to_string(id) + " on device " + std::to_string(device));
}

uint64_t enqueue(Stream& stream, Operation operation) {
  State& s = state();
  operation.number = ++stream.last_number;
  // A spread of delays: operations of two streams come due in any order.
  operation.due_ns = now_ns() + s.delay_ns / 2 + static_cast<int64_t>(s.random() % static_cast<uint64_t>(s.delay_ns / 2 + 1));
  if (operation.point) {
    operation.point->stream = &stream;
    operation.point->number = operation.number;
  }
  stream.queue.push_back(std::move(operation));
  ++s.counters.in_flight;
  if (!stream.has_thread) {
    stream.has_thread = true;
    std::thread thread([&stream] { serve(stream); });
    pthread_t handle = thread.native_handle();
    pthread_getcpuclockid(handle, &stream.cpu_clock);
    thread.detach();
  }
  // A device is told of work without a system call. So the caller does not pay for threads that need not look.
  if (!stream.runs) stream.has_work.notify_one();
  return stream.last_number;
}

void tell_all(State& s) {
  s.changed.notify_all();
  for (Stream* stream : s.streams) stream->has_work.notify_one();
}

PointPtr enqueue_point(Stream& stream) {
  auto point = std::make_shared<Point>();
  Operation operation;
  operation.point = point;
  enqueue(stream, std::move(operation));
  return point;
}

int64_t new_stream(int device) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  int64_t id = std::count_if(s.streams.begin(), s.streams.end(), [&](const Stream* stream) { return stream->device == device; });
  s.streams.push_back(new Stream{device, id});
  ++s.counters.streams;
  return id;
}

int64_t current_stream(int device) {
  if (in_forked_child()) throw ForkedChild(IN_CHILD);
  return stream_now[device];
}

int64_t exchange_stream(int device, int64_t id) {
  if (in_forked_child()) throw ForkedChild(IN_CHILD);
  return std::exchange(stream_now[device], id);
}

int current_device() noexcept { return device_now; }
int exchange_device(int device) noexcept { return std::exchange(device_now, device); }

bool stream_is_idle(int device, int64_t id) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  Stream& stream = stream_of(device, id);
  if (stream.completed >= stream.last_number) return true;
  if (++stream.queries >= s.queries) {
    stream.queries = 0;
    ask(stream, stream.last_number);
    tell_all(s);
  }
  return false;
}

void synchronize_stream(int device, int64_t id) {
  check_usable();
  Lock lock(state().mutex);
  Stream& stream = stream_of(device, id);
  ask_and_wait(lock, stream, stream.last_number);
}

void synchronize_device(int device) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  for (size_t i = 0; i < s.streams.size(); ++i)
    if (device < 0 || s.streams[i]->device == device) ask_and_wait(lock, *s.streams[i], s.streams[i]->last_number);
}

PointPtr record(int device, int64_t id) {
  check_usable();
  Lock lock(state().mutex);
  return enqueue_point(stream_of(device, id));
}

void wait(int device, int64_t id, const PointPtr& point) {
  check_usable();
  Lock lock(state().mutex);
  Stream& stream = stream_of(device, id);
  if (point->done || point->stream == &stream) return;
  Operation operation;
  operation.waits_for = point;
  enqueue(stream, std::move(operation));
}

bool query(const PointPtr& point) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  if (!point->done && ++point->queries >= s.queries) {
    ask(*point->stream, point->number);
    tell_all(s);
  }
  return point->done;
}

void synchronize(const PointPtr& point) {
  check_usable();
  Lock lock(state().mutex);
  ask_and_wait(lock, *point->stream, point->number);
}

void count_event(int change) noexcept {
  if (in_forked_child()) return;
  Lock lock(state().mutex);
  state().counters.events += change;
}

void launch(int device, int64_t id, double takes_ms, std::function<void()> task) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  Operation operation;
  operation.task = std::move(task);
  operation.takes_ms = takes_ms;
  enqueue(stream_of(device, id), std::move(operation));
  ++s.counters.kernels;
}

void copy(int device, int64_t id, Direction direction, void* to, const void* from, size_t bytes, void* host, bool may_return_early) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  HostMemory kind = host ? kind_of_locked(s, host, bytes) : HostMemory::PINNED;
  Stream& stream = stream_of(device, id);
  Operation operation;
  operation.bytes = bytes;
  if (host && kind != HostMemory::PAGEABLE) begin_host_use(s, operation, host, bytes);
  bool registered = kind == HostMemory::REGISTERED;
  operation.task = [=] {
    if (!registered || registration_is_intact(host, bytes)) memcpy(to, from, bytes);
  };
  auto count = static_cast<int64_t>(bytes);
  if (direction == Direction::TO_DEVICE) {
    ++s.counters.copies_to_device, s.counters.bytes_to_device += count;
  } else if (direction == Direction::TO_HOST) {
    ++s.counters.copies_to_host, s.counters.bytes_to_host += count;
  } else {
    ++s.counters.copies_on_device;
  }
  if (kind == HostMemory::PAGEABLE) ++s.counters.pageable_copies;
  uint64_t number = enqueue(stream, std::move(operation));
  if (!may_return_early || kind == HostMemory::PAGEABLE) ask_and_wait(lock, stream, number);
}

uint64_t checksum(const void* data, size_t bytes) {
  auto* at = static_cast<const unsigned char*>(data);
  uint64_t sum = 0x9E3779B97F4A7C15ULL ^ bytes;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    sum = (sum ^ word) * 0xD6E8FEB86659FD93ULL;
    sum ^= sum >> 32;
  }
  for (; bytes; --bytes, ++at) sum = (sum ^ *at) * 0x100000001B3ULL;
  return sum;
}

}  // namespace fakeaccel
