// Device memory with a caching allocator, pinned host memory, and registered host memory.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "state.h"

namespace fakeaccel {

namespace {

const size_t PAGE = static_cast<size_t>(sysconf(_SC_PAGESIZE));

size_t rounded(size_t bytes, size_t to) { return std::max<size_t>((bytes + to - 1) / to * to, to); }

template <typename Map>
auto containing(Map& map, const void* address) {
  using Key = typename Map::key_type;
  auto found = map.upper_bound(static_cast<Key>(const_cast<void*>(address)));
  return found == map.begin() ? map.end() : std::prev(found);
}

template <typename Map, typename Size>
auto within(Map& map, const void* address, Size size_of) {
  auto found = containing(map, address);
  if (found != map.end() && static_cast<const char*>(address) < found->first + size_of(found->second)) return found;
  return map.end();
}

auto registration_of(State& s, const void* address) {
  return within(s.registrations, address, [](const Registration& r) { return r.size; });
}

auto pinned_of(State& s, const void* address) {
  return within(s.pinned, address, [](const HostBlock& b) { return b.size; });
}

Block* block_of(State& s, const void* address) {
  auto found = within(s.blocks, address, [](const Block* b) { return b->size; });
  return found == s.blocks.end() ? nullptr : found->second;
}

void poison(State& s, Block* block) {
  // In the order of its own stream: what that stream has still to do with the old contents comes first.
  if (s.policy == Policy::TIMED || s.lost) return;
  Operation operation;
  operation.task = [storage = block->storage, bytes = block->asked_bytes] { memset(storage, FREED, bytes); };
  enqueue(stream_of(block->device, block->stream), std::move(operation));
}

void make_free(State& s, Block* block) {
  poison(s, block);
  s.free_blocks[{block->device, block->stream}].emplace(block->size, block);
}

// Blocks that were used by other streams are free when those streams have passed the free.
void collect_deferred(State& s) {
  auto is_free = [&](Block* block) {
    if (std::any_of(block->pending.begin(), block->pending.end(), [](const PointPtr& point) { return !point->done; })) return false;
    block->pending.clear();
    make_free(s, block);
    return true;
  };
  s.deferred.erase(std::remove_if(s.deferred.begin(), s.deferred.end(), is_free), s.deferred.end());
}

Block* taken(std::multimap<size_t, Block*>& from, size_t size) {
  auto found = from.lower_bound(size);
  if (found == from.end() || found->first > 2 * size) return nullptr;
  Block* block = found->second;
  from.erase(found);
  return block;
}

Block* mapped(int device, size_t size) {
  void* both = mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (both == MAP_FAILED) return nullptr;
  char* address = static_cast<char*>(both);
  mprotect(address + size, size, PROT_READ | PROT_WRITE);
  madvise(address, 2 * size, MADV_DONTFORK);
  return new Block{address, address + size, size, device};
}

void give_back_cached(State& s) {
  for (auto& [where, blocks] : s.free_blocks) {
    for (auto& [size, block] : blocks) {
      madvise(block->storage, size, MADV_DONTNEED);
      s.counters.reserved_bytes -= static_cast<int64_t>(size);
      s.given_back.emplace(size, block);
    }
    blocks.clear();
  }
}

bool has_swap() {
  static const bool found = [] {
    std::ifstream swaps("/proc/swaps");
    std::string line;
    return std::getline(swaps, line) && std::getline(swaps, line);
  }();
  return found;
}

// Device and inode of what is mapped at an address, or "nothing".
std::string mapping_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  auto wanted = reinterpret_cast<uintptr_t>(address);
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long begin, end, offset, inode;
    char mode[8], device[16];
    if (sscanf(line.c_str(), "%lx-%lx %7s %lx %15s %lu", &begin, &end, mode, &offset, device, &inode) == 6 && begin <= wanted && wanted < end)
      return std::string(device) + " " + std::to_string(inode) + (inode ? " at " + std::to_string(offset + (wanted - begin)) : "");
  }
  return "nothing";
}

std::string text_of(const void* address, size_t size) {
  std::ostringstream text;
  text << size << " bytes at " << address;
  return text.str();
}

// What is wrong with memory that was registered: empty if nothing.
std::string trouble_with(const void* address, size_t size) {
  auto begin = reinterpret_cast<uintptr_t>(address) / PAGE * PAGE;
  auto length = reinterpret_cast<uintptr_t>(address) + size - begin;
  if (msync(reinterpret_cast<void*>(begin), length, MS_ASYNC) != 0) return "is unmapped";
  std::vector<unsigned char> resident((length + PAGE - 1) / PAGE);
  if (!has_swap() && mincore(reinterpret_cast<void*>(begin), length, resident.data()) == 0 &&
      std::any_of(resident.begin(), resident.end(), [](unsigned char page) { return !(page & 1); }))
    return "is trimmed";
  return "";
}

}  // namespace

void* allocate(int device, int64_t stream, size_t bytes) {
  check_usable();
  State& s = state();
  size_t size = rounded(bytes, PAGE);
  for (bool again = false;; again = true) {
    {
      Lock lock(s.mutex);
      collect_deferred(s);
      Block* block = taken(s.free_blocks[{device, stream}], size);
      if (!block && s.counters.reserved_bytes + static_cast<int64_t>(size) <= s.limit_bytes) {
        block = taken(s.given_back, size);
        if (!block) block = mapped(device, size);
        if (block) {
          s.counters.reserved_bytes += static_cast<int64_t>(block->size);
          s.counters.reserved_peak_bytes = std::max(s.counters.reserved_peak_bytes, s.counters.reserved_bytes);
          if (s.policy != Policy::TIMED || s.move_bytes) memset(block->storage, FRESH, std::min(block->size, bytes));
        }
      }
      if (block) {
        block->device = device, block->stream = stream, block->asked_bytes = bytes, block->live = true;
        s.blocks[block->address] = block;
        ++s.counters.live_blocks, s.counters.live_bytes += static_cast<int64_t>(bytes);
        return block->address;
      }
      if (again) {
        ++s.counters.allocations_failed;
        throw OutOfMemory("fakeaccel out of memory: tried to allocate " + std::to_string(bytes) + " bytes, " +
                          std::to_string(s.counters.live_bytes) + " are in use, the limit is " + std::to_string(s.limit_bytes));
      }
    }
    empty_cache();
  }
}

void release(void* address) noexcept {
  State& s = state();
  if (in_forked_child()) return;
  Lock lock(s.mutex);
  Block* block = block_of(s, address);
  block->live = false;
  --s.counters.live_blocks, s.counters.live_bytes -= static_cast<int64_t>(block->asked_bytes);
  block->used_by.erase(block->stream);
  for (int64_t stream : block->used_by)
    if (!s.lost) block->pending.push_back(enqueue_point(stream_of(block->device, stream)));
  block->used_by.clear();
  if (block->pending.empty())
    make_free(s, block);
  else
    s.deferred.push_back(block);
}

void record_use(void* address, int64_t stream) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  if (Block* block = block_of(s, address)) block->used_by.insert(stream);
}

int device_of(const void* address) {
  State& s = state();
  Lock lock(s.mutex);
  Block* block = block_of(s, address);
  return block ? block->device : -1;
}

char* storage_of(const void* address) {
  State& s = state();
  Lock lock(s.mutex);
  Block* block = block_of(s, address);
  if (!block) throw std::runtime_error("fakeaccel error: an address that is not the device's");
  return block->storage + (static_cast<const char*>(address) - block->address);
}

void empty_cache() {
  synchronize_device(-1);
  State& s = state();
  {
    Lock lock(s.mutex);
    collect_deferred(s);
  }
  synchronize_device(-1);  // the poison
  Lock lock(s.mutex);
  give_back_cached(s);
}

std::pair<int64_t, int64_t> memory_left_and_limit() {
  State& s = state();
  Lock lock(s.mutex);
  return {s.limit_bytes - s.counters.reserved_bytes, s.limit_bytes};
}

void* pin(size_t bytes) {
  check_usable();
  State& s = state();
  Lock lock(s.mutex);
  if (s.pinnings_to_fail) {
    if (s.pinnings_to_fail > 0) --s.pinnings_to_fail;
    ++s.counters.pinnings_failed;
    throw std::runtime_error("fakeaccel error: page-locked memory is refused (injected)");
  }
  size_t size = rounded(bytes, PAGE);
  ++s.counters.pinned_blocks, s.counters.pinned_bytes += static_cast<int64_t>(size);
  for (auto& [address, block] : s.pinned) {
    if (!block.live && !block.uses && block.size == size) {
      block.live = true;
      return address;
    }
  }
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::runtime_error("fakeaccel error: no host memory to page-lock");
  memset(address, FRESH, size);
  s.pinned.emplace(static_cast<char*>(address), HostBlock{size});
  return address;
}

void unpin(void* address) noexcept {
  State& s = state();
  if (in_forked_child()) return;
  Lock lock(s.mutex);
  HostBlock& block = s.pinned.at(static_cast<char*>(address));
  block.live = false;
  --s.counters.pinned_blocks, s.counters.pinned_bytes -= static_cast<int64_t>(block.size);
  if (!block.uses && s.policy != Policy::TIMED) memset(address, FREED, block.size);
}

bool is_pinned(const void* address) noexcept {
  State& s = state();
  if (in_forked_child()) return false;
  Lock lock(s.mutex);
  auto found = pinned_of(s, address);
  return (found != s.pinned.end() && found->second.live) || registration_of(s, address) != s.registrations.end();
}

HostMemory kind_of_locked(State& s, const void* host, size_t bytes) {
  if (pinned_of(s, host) != s.pinned.end()) return HostMemory::PINNED;
  auto found = registration_of(s, host);
  if (found == s.registrations.end()) return HostMemory::PAGEABLE;
  if (static_cast<const char*>(host) + bytes > found->first + found->second.size)
    throw std::runtime_error("fakeaccel error: invalid argument: a copy of " + text_of(host, bytes) +
                             " runs past the end of the registered memory in which it begins");
  return HostMemory::REGISTERED;
}

HostMemory kind_of(const void* host, size_t bytes) {
  State& s = state();
  Lock lock(s.mutex);
  return kind_of_locked(s, host, bytes);
}

void begin_host_use(State& s, Operation& operation, void* host, size_t) {
  auto pinned = pinned_of(s, host);
  if (pinned != s.pinned.end()) {
    operation.host = pinned->first;
    ++pinned->second.uses;
  } else {
    auto registered = registration_of(s, host);
    operation.host = registered->first;
    ++registered->second.uses;
  }
}

void finish_host_use(State& s, const Operation& operation) {
  auto* begin = static_cast<char*>(operation.host);
  if (auto pinned = s.pinned.find(begin); pinned != s.pinned.end()) {
    HostBlock& block = pinned->second;
    if (--block.uses == 0 && !block.live && s.policy != Policy::TIMED) memset(begin, FREED, block.size);
  } else if (auto registered = s.registrations.find(begin); registered != s.registrations.end()) {
    --registered->second.uses;
  }
}

bool registration_is_intact(const void* host, size_t bytes) {
  std::string trouble = trouble_with(host, bytes);
  if (trouble.empty()) return true;
  State& s = state();
  Lock lock(s.mutex);
  s.violations.push_back("a copy used registered memory that " + trouble + ": " + text_of(host, bytes));
  return trouble != "is unmapped";
}

extern "C" {

// As cudaHostRegister: 0, 304 (refused), 712 (overlaps what is registered), 719 (lost).
int fakeaccel_host_register(void* address, size_t size) {
  State& s = state();
  if (in_forked_child() || s.lost) return 719;
  Lock lock(s.mutex);
  auto* begin = static_cast<char*>(address);
  auto next = s.registrations.lower_bound(begin);
  bool overlaps = registration_of(s, begin) != s.registrations.end() || (next != s.registrations.end() && next->first < begin + size);
  bool refused = s.registrations_to_fail != 0;
  if (s.registrations_to_fail > 0) --s.registrations_to_fail;
  if (refused || overlaps || !size) {
    ++s.counters.registrations_failed;
    if (overlaps) s.violations.push_back("registered twice: " + text_of(address, size));
    return overlaps ? 712 : refused ? 304 : 1;
  }
  for (size_t at = 0; at < size; at += PAGE) (void)*static_cast<volatile char*>(begin + at);  // a driver needs every page
  s.registrations.emplace(begin, Registration{size, mapping_at(address)});
  ++s.counters.registrations, ++s.counters.registrations_made;
  s.counters.registered_bytes += static_cast<int64_t>(size);
  return 0;
}

// As cudaHostUnregister: 0, 600 (copies are in flight), 713 (not registered), 719 (lost).
int fakeaccel_host_unregister(void* address) {
  State& s = state();
  if (in_forked_child()) return 719;
  Lock lock(s.mutex);
  auto found = s.registrations.find(static_cast<char*>(address));
  if (found == s.registrations.end()) {
    s.violations.push_back("unregistered, but was not registered: " + text_of(address, 0));
    return 713;
  }
  const Registration& registration = found->second;
  if (registration.uses) {
    s.violations.push_back("unregistered while " + std::to_string(registration.uses) + " copies use it: " + text_of(address, registration.size));
    return 600;
  }
  if (std::string trouble = trouble_with(address, registration.size); !trouble.empty())
    s.violations.push_back("registered memory " + trouble + ": " + text_of(address, registration.size));
  else if (mapping_at(address) != registration.mapping)
    s.violations.push_back("registered memory was replaced by another mapping: " + text_of(address, registration.size));
  --s.counters.registrations;
  s.counters.registered_bytes -= static_cast<int64_t>(registration.size);
  s.registrations.erase(found);
  return s.lost ? 719 : 0;
}

// Look at all registered memory: is what was registered still there?
void fakeaccel_audit() {
  State& s = state();
  Lock lock(s.mutex);
  for (auto& [address, registration] : s.registrations) {
    std::string trouble = trouble_with(address, registration.size);
    if (trouble.empty() && mapping_at(address) != registration.mapping) trouble = "was replaced by another mapping";
    if (!trouble.empty()) s.violations.push_back("registered memory " + trouble + ": " + text_of(address, registration.size));
  }
}
}

}  // namespace fakeaccel
