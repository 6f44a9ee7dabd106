// SPDX-License-Identifier: Apache-2.0
// Device and host memory, and attributes of addresses.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/program_memory.h"

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kPitchStep = 512;
constexpr unsigned kHostAllocFlags = 0x07;  // Portable, mapped, write-combined.
constexpr unsigned kHostMapped = 0x02;
constexpr unsigned kAttachGlobal = 1;
constexpr unsigned kAttachHost = 2;
constexpr unsigned kHostRegisterFlags = 0x0f;  // Portable, mapped, I/O, read-only.
constexpr unsigned kHostRegisterMapped = 0x02;
constexpr unsigned kHostRegisterIo = 0x04;
constexpr unsigned kHostRegisterReadOnly = 0x08;

std::uint64_t GetAddress(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

// Session that has memory at an address.
struct Holder {
  std::shared_ptr<Session> session;  // Null if there is none.
  int ordinal = 0;
};

// Returns the only session besides `except` that has memory at the address. Several sessions may
// have memory there, because each device assigns its addresses independently; then returns none.
Holder OnlyHolder(std::uint64_t address, const Session* except) {
  Holder holder;
  Driver& driver = Driver::Get();
  for (int ordinal = 0; ordinal < driver.device_count(); ++ordinal) {
    std::shared_ptr<Session> session = driver.DeviceAt(ordinal)->LiveSession();
    if (session == nullptr || session.get() == except || !session->addresses().Find(address)) {
      continue;
    }
    if (holder.session != nullptr) return {};
    holder = {.session = std::move(session), .ordinal = ordinal};
  }
  return holder;
}

// As in NVIDIA's driver, an address alone identifies its memory, regardless of the current context.
Holder GetHolder(std::uint64_t address, const Current& current) {
  if (!current.ok()) return OnlyHolder(address, nullptr);
  const std::shared_ptr<Session>& here = current->shared_session();
  if (here->addresses().Find(address)) return {.session = here, .ordinal = current->ordinal()};
  return OnlyHolder(address, here.get());
}

// Calls `free` with the session of the current context and, unless that returns a code, with the
// only other session that has memory at the address. If neither call returns a code, returns
// `unknown`, or kInvalidContext without a current context.
template <typename Free>
Code FreeAnywhere(std::uint64_t address, const Free& free, Code unknown) {
  const Current current;
  if (!current.ok() && current.code() != Code::kInvalidContext) return current.code();
  Session* const here = current.ok() ? &current->session() : nullptr;
  if (here != nullptr) {
    if (const std::optional<Code> code = free(*here)) return *code;
  }
  const Holder holder = OnlyHolder(address, here);
  if (holder.session != nullptr) {
    if (const std::optional<Code> code = free(*holder.session)) return *code;
  }
  return here != nullptr ? unknown : Code::kInvalidContext;
}

// Frees the block of one of these kinds that begins at the address.
Code Free(std::uint64_t address, std::initializer_list<BlockKind> kinds, Code unknown) {
  if (const Code code = RejectWhileCapturing(); code != Code::kSuccess) return code;
  const auto free = [&](Session& session) -> std::optional<Code> {
    const bool is_here = std::ranges::any_of(
        kinds, [&](BlockKind kind) { return session.addresses().Remove(address, kind); });
    return is_here ? std::optional(Code::kSuccess) : std::nullopt;
  };
  return FreeAnywhere(address, free, unknown);
}

// `block` has kind and flags of the new block.
Code AllocateMirrored(Session& session, const Context& context, std::size_t bytes, Block block,
                      std::uint64_t& address) {
  const Sharing sharing =
      block.kind == BlockKind::kManaged ? Sharing::kInTurns : Sharing::kAtAnyTime;
  Result<std::shared_ptr<Mirror>> mirror = Mirror::Make(session.client(), bytes, sharing);
  if (!mirror.ok()) return session.GetCode(mirror.status());
  block.address = address = (*mirror)->address();
  block.bytes = bytes;
  block.context_id = context.id();
  block.buffer_id = NextBufferId();
  session.mirrored().Add(*mirror);
  return session.addresses().Insert(block, std::move(*mirror)) ? Code::kSuccess
                                                               : Code::kOutOfMemory;
}

}  // namespace

Code MemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (AnyNull(free_bytes, total_bytes)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const MemoryInfo info = current->session().client().memory_info();
  *total_bytes = info.total_bytes;
  *free_bytes = info.total_bytes - std::min(info.used_bytes, info.total_bytes);
  return Code::kSuccess;
}

// ---- device memory

namespace {

// CUDA does not guarantee zeros, but drivers provide large allocations on cleared pages, and
// programs rely on that.
Status Clear(const Client& client, const DeviceBuffer& buffer) {
  if (buffer.size() < kLargeBytes || buffer.used_bytes() == 0) return Status::Ok();
  const Stream stream = client.default_stream();
  Status status = stream.Fill(buffer.address(), FillElement::U8(0), buffer.used_bytes());
  // Synchronizes, because commands of other streams follow.
  return status.ok() ? stream.Synchronize() : status;
}

}  // namespace

Code MemAlloc(DevicePointer* address, std::size_t bytes) {
  if (AnyNull(address) || bytes == 0) return Code::kInvalidValue;
  if (const Code code = RejectWhileCapturing(); code != Code::kSuccess) return code;
  const Current current;
  if (!current.ok()) return current.code();
  Session& session = current->session();
  Result<DeviceBuffer> buffer = session.client().AllocateDevice(bytes);
  if (!buffer.ok()) return session.GetCode(buffer.status());
  if (Status cleared = Clear(session.client(), *buffer); !cleared.ok()) {
    return session.GetCode(cleared);
  }
  const std::uint64_t begin = buffer->address();
  if (!session.addresses().Insert({.address = begin,
                                   .bytes = bytes,
                                   .kind = BlockKind::kDevice,
                                   .context_id = current->id(),
                                   .buffer_id = NextBufferId()},
                                  std::move(*buffer))) {
    return Reject(Code::kOutOfMemory,
                  "allocation rejected: this process has host memory at the "
                  "device's address");
  }
  *address = begin;
  return Code::kSuccess;
}

Code MemAllocPitch(DevicePointer* address, std::size_t* pitch, std::size_t width_bytes,
                   std::size_t height, unsigned element_bytes) {
  if (AnyNull(address, pitch) || width_bytes == 0 || height == 0) return Code::kInvalidValue;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return Code::kInvalidValue;
  constexpr std::size_t kBytesMax = std::numeric_limits<std::size_t>::max();
  if (width_bytes > kBytesMax - kPitchStep) return Code::kOutOfMemory;
  const std::size_t row = (width_bytes + kPitchStep - 1) / kPitchStep * kPitchStep;
  if (height > kBytesMax / row) return Code::kOutOfMemory;
  const Code code = MemAlloc(address, row * height);
  if (code == Code::kSuccess) *pitch = row;
  return code;
}

// Commands that use the memory may still be queued; the library reuses it only after them.
Code MemFree(DevicePointer address) {
  if (address == 0) return Code::kSuccess;
  return Free(address, {BlockKind::kDevice, BlockKind::kManaged}, Code::kInvalidValue);
}

Code MemAllocManaged(DevicePointer* address, std::size_t bytes, unsigned flags) {
  if (AnyNull(address) || bytes == 0 || (flags != kAttachGlobal && flags != kAttachHost)) {
    return Code::kInvalidValue;
  }
  if (const Code code = RejectWhileCapturing(); code != Code::kSuccess) return code;
  const Current current;
  if (!current.ok()) return current.code();
  std::uint64_t begin = 0;
  const Code code =
      AllocateMirrored(current->session(), *current, bytes, {.kind = BlockKind::kManaged}, begin);
  if (code == Code::kSuccess) *address = begin;
  return code;
}

// Has the same effect for every attachment: kernels of all streams can access the memory, and the
// program can do so while kernels run.
Code StreamAttachMemAsync(StreamHandle handle, DevicePointer address, std::size_t, unsigned) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  Session& session = current->session();
  const std::optional<Block> block = session.addresses().Find(address);
  if (!block || block->kind != BlockKind::kManaged) return Code::kInvalidValue;
  const std::shared_ptr<Mirror> mirror = session.addresses().MirrorAt(address);
  if (mirror != nullptr) session.mirrored().ShareAtAnyTime(*mirror);
  return Code::kSuccess;
}

Code MemGetAddressRange(DevicePointer* base, std::size_t* bytes, DevicePointer address) {
  const Current current;
  if (!current.ok()) return current.code();
  const std::optional<Block> block = current->session().addresses().Find(address);
  if (!block || !block->is_device()) return Code::kNotFound;
  if (base != nullptr) *base = block->address;
  if (bytes != nullptr) *bytes = block->bytes;
  return Code::kSuccess;
}

// ---- host memory

Code MemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  if (AnyNull(address) || bytes == 0 || (flags & ~kHostAllocFlags) != 0) return Code::kInvalidValue;
  if (const Code code = RejectWhileCapturing(); code != Code::kSuccess) return code;
  const Current current;
  if (!current.ok()) return current.code();
  Session& session = current->session();
  if ((flags & kHostMapped) != 0) {
    std::uint64_t begin = 0;
    const Code code = AllocateMirrored(session, *current, bytes,
                                       {.kind = BlockKind::kMapped, .flags = flags}, begin);
    if (code == Code::kSuccess) *address = reinterpret_cast<void*>(begin);
    return code;
  }
  Result<HostBuffer> buffer = session.client().AllocateHost(bytes);
  if (!buffer.ok()) return session.GetCode(buffer.status());
  void* const data = buffer->data();
  if (!session.addresses().Insert({.address = GetAddress(data),
                                   .bytes = bytes,
                                   .kind = BlockKind::kHost,
                                   .context_id = current->id(),
                                   .buffer_id = NextBufferId(),
                                   .flags = flags},
                                  std::move(*buffer))) {
    return Reject(Code::kOutOfMemory, "allocation rejected: the device has memory at this address");
  }
  *address = data;
  return Code::kSuccess;
}

Code MemAllocHost(void** address, std::size_t bytes) { return MemHostAlloc(address, bytes, 0); }

Code MemFreeHost(void* address) {
  return Free(GetAddress(address), {BlockKind::kHost, BlockKind::kMapped}, Code::kInvalidValue);
}

Code MemHostGetDevicePointer(DevicePointer* address, void* host, unsigned flags) {
  if (AnyNull(address, host) || flags != 0) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const std::optional<Block> block = current->session().addresses().Find(GetAddress(host));
  if (!block || block->kind == BlockKind::kManaged) return Code::kInvalidValue;
  if (!block->OnHost(GetAddress(host)) || !block->OnDevice(GetAddress(host))) {
    return Code::kInvalidValue;
  }
  *address = *block->OnDevice(GetAddress(host));
  return Code::kSuccess;
}

Code MemHostGetFlags(unsigned* flags, void* address) {
  if (AnyNull(flags)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const std::optional<Block> block = current->session().addresses().Find(GetAddress(address));
  if (!block || !block->is_host_memory()) return Code::kInvalidValue;
  *flags = block->flags;
  return Code::kSuccess;
}

namespace {

// The flag for read-only memory is rejected, because the device attribute
// READ_ONLY_HOST_REGISTER_SUPPORTED is 0. Without the flag, CUDA registers only memory that can be
// written. I/O memory is rejected as well, because no device can
// access the memory of another device.
Code CheckRegistration(std::uint64_t address, std::size_t bytes, unsigned flags) {
  if ((flags & kHostRegisterReadOnly) != 0) {
    return Reject(Code::kNotSupported, "registration rejected: the device has no read-only memory");
  }
  if ((flags & kHostRegisterIo) != 0) {
    return Reject(Code::kNotSupported,
                  "registration rejected: the memory of other devices is not accessible");
  }
  if (IsReadableAndWritable(address, bytes)) return Code::kSuccess;
  return Reject(Code::kInvalidValue,
                "registration rejected: some of the memory is not mapped, or cannot be written");
}

}  // namespace

// The memory of the program is not moved, and copies of it are staged as before. Memory with an
// address for kernels gets a second block; other registered memory is accessible to kernels if a
// launch has its address as a parameter, as with unified addressing.
Code MemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  if (AnyNull(address) || bytes == 0 || (flags & ~kHostRegisterFlags) != 0) {
    return Code::kInvalidValue;
  }
  if (bytes - 1 > std::numeric_limits<std::uint64_t>::max() - GetAddress(address)) {
    return Code::kInvalidValue;
  }
  const Current current;
  if (!current.ok()) return current.code();
  if (const Code code = CheckRegistration(GetAddress(address), bytes, flags);
      code != Code::kSuccess) {
    return code;
  }
  Session& session = current->session();
  AddressBook& addresses = session.addresses();
  Block block = {.address = GetAddress(address),
                 .bytes = bytes,
                 .kind = BlockKind::kRegistered,
                 .context_id = current->id(),
                 .buffer_id = NextBufferId(),
                 .flags = flags};
  if ((flags & kHostRegisterMapped) == 0) {
    return addresses.Insert(block, {}) ? Code::kSuccess : Code::kHostMemoryAlreadyRegistered;
  }
  Result<std::shared_ptr<Mirror>> mirror =
      Mirror::Of(session.client(), address, bytes, Sharing::kAtAnyTime);
  if (!mirror.ok()) return session.GetCode(mirror.status());
  block.counterpart = (*mirror)->address();
  if (!addresses.Insert(block, {})) return Code::kHostMemoryAlreadyRegistered;
  std::swap(block.address, block.counterpart);
  block.kind = BlockKind::kReached;
  if (!addresses.Insert(block, *mirror)) {
    addresses.Remove(block.counterpart, BlockKind::kRegistered);
    return Reject(Code::kOutOfMemory,
                  "registration rejected: this process has host memory at the device's address");
  }
  session.mirrored().Add(*mirror);
  return Code::kSuccess;
}

Code MemHostUnregister(void* address) {
  if (AnyNull(address)) return Code::kInvalidValue;
  const auto unregister = [&](Session& session) -> std::optional<Code> {
    AddressBook& addresses = session.addresses();
    const std::optional<Block> block = addresses.Find(GetAddress(address));
    const bool is_here =
        block && block->kind == BlockKind::kRegistered && block->address == GetAddress(address);
    if (!is_here) return std::nullopt;
    // The writes of kernels must be in the program's memory before the kernels lose access to it.
    const std::shared_ptr<Mirror> mirror = block->is_reached_on_demand()
                                               ? addresses.Twin(GetAddress(address))
                                               : addresses.MirrorAt(GetAddress(address));
    Status written;
    if (mirror != nullptr) written = session.mirrored().AwaitToHost(*mirror);
    if (block->counterpart != 0) addresses.Remove(block->counterpart, BlockKind::kReached);
    addresses.Remove(GetAddress(address), BlockKind::kRegistered);
    if (!written.ok() || IsMapped(block->address, block->bytes)) return session.GetCode(written);
    return Reject(Code::kInvalidValue, "the program has unmapped memory that was registered");
  };
  return FreeAnywhere(GetAddress(address), unregister, Code::kHostMemoryNotRegistered);
}

// ---- pointer attributes

namespace {

// CUpointer_attribute.
enum PointerAttribute : int {
  kContext = 1,
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kSyncOperations = 6,
  kBufferId = 7,
  kIsManaged = 8,
  kOrdinal = 9,
  kIsIpcCapable = 10,
  kRangeStart = 11,
  kRangeBytes = 12,
  kIsMapped = 13,
  kHandleTypes = 14,
  kIsRdmaCapable = 15,
  kAccessFlags = 16,
  kPool = 17,
};

template <typename T>
void Store(void* to, T value) {
  *static_cast<T*>(to) = value;
}

template <typename T>
Code Put(void* to, T value) {
  Store(to, value);
  return Code::kSuccess;
}

Code PutAttribute(const Current& current, const Holder& holder, const Block& block, int attribute,
                  std::uint64_t address, void* value) {
  const auto as_pointer = [&](std::uint64_t at) { return Put(value, reinterpret_cast<void*>(at)); };
  switch (attribute) {
    case kContext:
      // Address books store contexts of other devices by number only.
      return current.ok() && holder.session == current->shared_session()
                 ? Put(value, ContextStack::Get().top())
                 : Code::kInvalidValue;
    case kMemoryType:
      return Put(value, block.is_host_memory() ? MemoryType::kHost : MemoryType::kDevice);
    case kDevicePointer:
      return block.OnDevice(address) ? as_pointer(*block.OnDevice(address)) : Code::kInvalidValue;
    case kHostPointer:
      return block.OnHost(address) ? as_pointer(*block.OnHost(address)) : Code::kInvalidValue;
    case kSyncOperations:
      return Put<int>(value, 0);
    case kBufferId:
      return Put<unsigned long long>(value, block.buffer_id);
    case kIsManaged:
      return Put<int>(value, block.kind == BlockKind::kManaged ? 1 : 0);
    case kOrdinal:
      return Put<int>(value, holder.ordinal);
    case kIsIpcCapable:
      return Put<int>(value, 0);
    case kRangeStart:
      return as_pointer(block.address);
    case kRangeBytes:
      return Put<std::size_t>(value, block.bytes);
    case kIsMapped:
      return Put<int>(value, 1);
    case kHandleTypes:
      return Put<std::uint64_t>(value, 0);
    case kIsRdmaCapable:
      return Put<int>(value, 0);
    case kAccessFlags:
      return Put<int>(value, 3);  // Read and write.
    case kPool:
      return Put(value, holder.session->addresses().PoolAt(address));
    default:
      return Code::kNotSupported;
  }
}

}  // namespace

Code PointerGetAttribute(void* value, int attribute, DevicePointer address) {
  if (AnyNull(value)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok() && current.code() != Code::kInvalidContext) return current.code();
  const Holder holder = GetHolder(address, current);
  if (holder.session == nullptr) return Code::kInvalidValue;
  const std::optional<Block> block = holder.session->addresses().Find(address);
  return block ? PutAttribute(current, holder, *block, attribute, address, value)
               : Code::kInvalidValue;
}

// Accepts any pointer. Attributes that do not apply to it are zero, but the ordinal is then -2.
Code PointerGetAttributes(unsigned count, int* attributes, void** values, DevicePointer address) {
  if (count == 0 || AnyNull(attributes, values)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok() && current.code() != Code::kInvalidContext) return current.code();
  const Holder holder = GetHolder(address, current);
  const std::optional<Block> block =
      holder.session == nullptr ? std::nullopt : holder.session->addresses().Find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (values[i] == nullptr) return Code::kInvalidValue;
    const int attribute = attributes[i];
    if (block &&
        PutAttribute(current, holder, *block, attribute, address, values[i]) == Code::kSuccess) {
      continue;
    }
    if (attribute == kContext || attribute == kDevicePointer || attribute == kHostPointer ||
        attribute == kRangeStart || attribute == kRangeBytes || attribute == kBufferId ||
        attribute == kHandleTypes || attribute == kPool) {
      Store<std::uint64_t>(values[i], 0);
    } else {
      Store<int>(values[i], attribute == kOrdinal ? -2 : 0);
    }
  }
  return Code::kSuccess;
}

// Synchronous copies are complete when they return, regardless of this setting.
Code PointerSetAttribute(const void* value, int attribute, DevicePointer address) {
  if (AnyNull(value) || attribute != kSyncOperations) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  return current->session().addresses().Find(address) ? Code::kSuccess : Code::kInvalidValue;
}

}  // namespace gpushared::drop_in
