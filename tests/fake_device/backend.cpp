// The fake accelerator as torch sees it: device guard, hooks, allocators and the operators that are its own.
//
// Every other operator runs on the CPU, on copies that are made in the order of the current stream.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "engine.h"

namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using fakeaccel::Direction;
using fakeaccel::PointPtr;

constexpr auto TYPE = DeviceType::PrivateUse1;

// Turns the engine's errors into those that CUDA raises.
template <typename Call>
auto translated(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const fakeaccel::OutOfMemory& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  } catch (const fakeaccel::DeviceLost& error) {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, 719, error.what());
  } catch (const std::runtime_error& error) {
    TORCH_CHECK(false, error.what());
  }
}

int index_of(Device device) {
  int index = device.has_index() ? device.index() : fakeaccel::current_device();
  TORCH_CHECK(index >= 0 && index < fakeaccel::DEVICES, "fakeaccel error: invalid device ordinal ", index, ", there are ", fakeaccel::DEVICES);
  return index;
}

Stream stream_on(int index, int64_t id) { return Stream(Stream::UNSAFE, Device(TYPE, static_cast<DeviceIndex>(index)), id); }

struct Event {
  PointPtr latest;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return TYPE; }
  Device exchangeDevice(Device device) const override {
    return Device(TYPE, static_cast<DeviceIndex>(fakeaccel::exchange_device(index_of(device))));
  }
  Device getDevice() const override { return Device(TYPE, static_cast<DeviceIndex>(fakeaccel::current_device())); }
  void setDevice(Device device) const override { fakeaccel::exchange_device(index_of(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) fakeaccel::exchange_device(device.index());
  }
  Stream getStream(Device device) const override {
    return translated([&] { return stream_on(index_of(device), fakeaccel::current_stream(index_of(device))); });
  }
  Stream getDefaultStream(Device device) const override { return stream_on(index_of(device), 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream getNewStream(Device device, int) const override {
    return translated([&] { return stream_on(index_of(device), fakeaccel::new_stream(index_of(device))); });
  }
  Stream exchangeStream(Stream stream) const override {
    return translated([&] {
      int index = stream.device_index();
      return stream_on(index, fakeaccel::exchange_stream(index, stream.id()));
    });
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
    if (event) fakeaccel::count_event(-1);
  }
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    translated([&] {
      PointPtr point = fakeaccel::record(stream.device_index(), stream.id());
      if (!*event) {
        *event = new Event();
        fakeaccel::count_event(1);
      }
      static_cast<Event*>(*event)->latest = point;
    });
  }
  void block(void* event, const Stream& stream) const override {
    if (event) translated([&] { fakeaccel::wait(stream.device_index(), stream.id(), static_cast<Event*>(event)->latest); });
  }
  bool queryEvent(void* event) const override {
    return !event || translated([&] { return fakeaccel::query(static_cast<Event*>(event)->latest); });
  }
  void synchronizeEvent(void* event) const override {
    if (event) translated([&] { fakeaccel::synchronize(static_cast<Event*>(event)->latest); });
  }
  DeviceIndex deviceCount() const noexcept override { return fakeaccel::DEVICES; }
  bool queryStream(const Stream& stream) const override {
    return translated([&] { return fakeaccel::stream_is_idle(stream.device_index(), stream.id()); });
  }
  void synchronizeStream(const Stream& stream) const override {
    translated([&] { fakeaccel::synchronize_stream(stream.device_index(), stream.id()); });
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    translated([&] { fakeaccel::synchronize_device(index); });
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    translated([&] { fakeaccel::record_use(data.get(), stream.id()); });
  }
  double elapsedTime(void* begin, void* end, const DeviceIndex) const override {
    TORCH_CHECK(begin && end, "fakeaccel error: elapsed_time needs two recorded events");
    return static_cast<double>(static_cast<Event*>(end)->latest->done_ns - static_cast<Event*>(begin)->latest->done_ns) / 1e6;
  }
};

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return translated([&] {
      int index = fakeaccel::current_device();
      Device device(TYPE, static_cast<DeviceIndex>(index));
      if (!bytes) {
        fakeaccel::check_usable();
        return c10::DataPtr(nullptr, nullptr, &release, device);
      }
      void* address = fakeaccel::allocate(index, fakeaccel::current_stream(index), bytes);
      return c10::DataPtr(address, address, &release, device);
    });
  }
  static void release(void* address) {
    if (address) fakeaccel::release(address);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    translated([&] {
      int index = fakeaccel::device_of(to);
      fakeaccel::copy(index, fakeaccel::current_stream(index), Direction::ON_DEVICE, fakeaccel::storage_of(to), fakeaccel::storage_of(from), bytes,
                      nullptr, true);
    });
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { translated([] { fakeaccel::empty_cache(); }); }
  void recordStream(const c10::DataPtr& data, Stream stream) override {
    translated([&] { fakeaccel::record_use(data.get(), stream.id()); });
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override { return {}; }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex) override {
    auto [left, limit] = fakeaccel::memory_left_and_limit();
    return {static_cast<size_t>(std::max<int64_t>(left, 0)), static_cast<size_t>(limit)};
  }
};

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    return translated([&] {
      void* address = fakeaccel::pin(bytes);
      return c10::DataPtr(address, address, &release, Device(DeviceType::CPU));
    });
  }
  static void release(void* address) { fakeaccel::unpin(address); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

DeviceMemory device_memory;
PinnedMemory pinned_memory;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return !fakeaccel::in_forked_child(); }
  void init() const override { translated([] { fakeaccel::check_usable(); }); }
  DeviceIndex deviceCount() const override { return fakeaccel::DEVICES; }
  void setCurrentDevice(DeviceIndex index) const override { fakeaccel::exchange_device(index_of(Device(TYPE, index))); }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(fakeaccel::current_device()); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return static_cast<DeviceIndex>(fakeaccel::exchange_device(index_of(Device(TYPE, index))));
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return index < 0 ? getCurrentDevice() : exchangeDevice(index); }
  Device getDeviceFromPtr(void* data) const override { return Device(TYPE, static_cast<DeviceIndex>(fakeaccel::device_of(data))); }
  bool isPinnedPtr(const void* data) const override { return fakeaccel::is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr data = device_memory.allocate(bytes);
    if (size_t kept = std::min(bytes, storage.nbytes())) device_memory.copy_data(data.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// A CPU tensor over the bytes of one on the device; for use on a stream's thread.
struct View {
  char* data;
  std::vector<int64_t> sizes, strides;
  c10::ScalarType dtype;
  explicit View(const Tensor& tensor)
      : data(fakeaccel::storage_of(tensor.const_data_ptr())),
        sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        dtype(tensor.scalar_type()) {}
  Tensor tensor() const { return at::from_blob(data, sizes, strides, at::TensorOptions(dtype)); }
};

bool is_ours(const Tensor& tensor) { return tensor.device().type() == TYPE; }

template <typename Task>
void launch_on(const Tensor& tensor, Task task) {
  translated([&] {
    int index = tensor.device().index();
    fakeaccel::launch(index, fakeaccel::current_stream(index), 0, std::move(task));
  });
}

Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>, std::optional<Device> device,
             std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(!c10::pinned_memory_or_default(pinned), "only memory of the CPU can be pinned");
  c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                     std::optional<Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(size, stride, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

bool goes_as_bytes(const Tensor& from, const Tensor& to) {
  return from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() && from.strides() == to.strides() &&
         from.is_non_overlapping_and_dense() && from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
}

void copy_bytes(const Tensor& from, const Tensor& to, bool non_blocking) {
  translated([&] {
    int index = is_ours(to) ? to.device().index() : from.device().index();
    Direction direction = !is_ours(from) ? Direction::TO_DEVICE : is_ours(to) ? Direction::ON_DEVICE : Direction::TO_HOST;
    void* target = is_ours(to) ? fakeaccel::storage_of(to.const_data_ptr()) : const_cast<void*>(to.const_data_ptr());
    const void* source = is_ours(from) ? fakeaccel::storage_of(from.const_data_ptr()) : from.const_data_ptr();
    void* host = direction == Direction::TO_DEVICE ? const_cast<void*>(source) : direction == Direction::TO_HOST ? target : nullptr;
    bool early = direction == Direction::ON_DEVICE || non_blocking;
    fakeaccel::copy(index, fakeaccel::current_stream(index), direction, target, source, from.numel() * from.itemsize(), host, early);
  });
}

// Lets the current stream of one device wait for that of another.
void wait_for(Device waits, Device other) {
  translated([&] {
    PointPtr point = fakeaccel::record(other.index(), fakeaccel::current_stream(other.index()));
    fakeaccel::wait(waits.index(), fakeaccel::current_stream(waits.index()), point);
  });
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  translated([] { fakeaccel::check_usable(); });
  if (!to.numel()) return to;
  if (is_ours(from) && is_ours(to) && from.device() != to.device()) {
    Tensor target = to.is_contiguous() && to.scalar_type() == from.scalar_type() ? to : at::empty(to.sizes(), to.options().dtype(from.scalar_type()));
    Tensor source = from.expand_as(target).contiguous();
    wait_for(to.device(), from.device());
    copy_bytes(source, target, true);
    wait_for(from.device(), to.device());
    return target.is_same(to) ? to : copy_from(target, to, true);
  }
  if (goes_as_bytes(from, to)) {
    copy_bytes(from, to, non_blocking);
  } else if (is_ours(from) && is_ours(to)) {
    launch_on(to, [source = View(from.expand_as(to)), target = View(to)] { target.tensor().copy_(source.tensor()); });
  } else if (is_ours(to)) {
    // As on CUDA: converted and made contiguous on the host first, then copied, then put in its place on the device.
    Tensor on_host = at::empty(to.sizes(), to.options().device(DeviceType::CPU)).copy_(from);
    Tensor on_device = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
    copy_bytes(on_host, on_device, false);
    if (!on_device.is_same(to)) copy_from(on_device, to, false);
  } else {
    Tensor on_device = at::empty(from.sizes(), from.options());
    copy_from(from, on_device, false);
    Tensor on_host = at::empty(from.sizes(), from.options().device(DeviceType::CPU));
    copy_bytes(on_device, on_host, false);
    const_cast<Tensor&>(to).copy_(on_host);
  }
  return to;
}

Tensor on_cpu(const Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options().device(DeviceType::CPU)).copy_(tensor); }

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const Tensor& tensor) { return at::_local_scalar_dense(on_cpu(tensor)); }

Tensor& fill(Tensor& tensor, const at::Scalar& value) {
  if (tensor.numel()) launch_on(tensor, [target = View(tensor), value] { target.tensor().fill_(value); });
  return tensor;
}

Tensor& zero(Tensor& tensor) { return fill(tensor, 0); }

void record_stream(Tensor& tensor, Stream stream) {
  translated([&] {
    fakeaccel::check_usable();
    if (tensor.storage().nbytes()) fakeaccel::record_use(const_cast<void*>(tensor.storage().data()), stream.id());
  });
}

// One number for all bytes of a tensor, in the order of its elements.
Tensor checksum_here(const Tensor& tensor) {
  Tensor whole = tensor.contiguous();
  auto sum = static_cast<int64_t>(fakeaccel::checksum(whole.const_data_ptr(), whole.numel() * whole.itemsize()));
  return at::empty({}, at::TensorOptions(c10::ScalarType::Long)).fill_(sum);
}

Tensor checksum_there(const Tensor& tensor) {
  Tensor result = at::empty({}, tensor.options().dtype(c10::ScalarType::Long));
  if (!tensor.numel()) return result.copy_(checksum_here(on_cpu(tensor)));
  launch_on(tensor, [source = View(tensor), target = View(result)] { target.tensor().copy_(checksum_here(source.tensor())); });
  return result;
}

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY(fakeaccel, m) { m.def("checksum(Tensor tensor) -> Tensor"); }
TORCH_LIBRARY_IMPL(fakeaccel, CPU, m) { m.impl("checksum", checksum_here); }
TORCH_LIBRARY_IMPL(fakeaccel, PrivateUse1, m) { m.impl("checksum", checksum_there); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("fill_.Scalar", fill);
  m.impl("zero_", zero);
  m.impl("record_stream", record_stream);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>()); }

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

const bool registered = [] {
  c10::SetAllocator(TYPE, &device_memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

}  // namespace
