// SPDX-License-Identifier: Apache-2.0
// Nodes that allocate and free memory, and queries about their memory.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_memory.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kDevicesMax = 4096;  // Longer lists of devices are invalid.

// CUgraphMem_attribute.
constexpr int kUsedBytes = 0;
constexpr int kUsedBytesHigh = 1;
constexpr int kReservedBytes = 2;
constexpr int kReservedBytesHigh = 3;

Code CheckPool(const PoolProperties& pool) {
  const bool is_reserved_zero =
      std::ranges::all_of(pool.reserved, [](unsigned char byte) { return byte == 0; });
  if (!is_reserved_zero) return Code::kInvalidValue;
  if (pool.handle_types != 0 || pool.usage != 0 || pool.type != AllocationType::kPinned ||
      pool.location.type != LocationType::kDevice) {
    return Reject(Code::kNotSupported, "node rejected: only device memory can be allocated");
  }
  return Code::kSuccess;
}

// Only the device of the memory itself may have access.
Code CheckAccess(const MemoryNodeParameters& given) {
  if ((given.access_count != 0 && AnyNull(given.access)) || given.access_count > kDevicesMax) {
    return Code::kInvalidValue;
  }
  const auto is_own = [&](const AccessDescription& wanted) {
    return wanted.location.type == LocationType::kDevice &&
           wanted.location.id == given.pool.location.id;
  };
  if (std::ranges::all_of(std::span(given.access, given.access_count), is_own)) {
    return Code::kSuccess;
  }
  return Reject(Code::kInvalidDevice, "node rejected: devices cannot access each other's memory");
}

template <typename Use>
Code WithGraphMemories(int ordinal, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  CudaDevice* const device = driver.DeviceAt(ordinal);
  return device == nullptr ? Code::kInvalidDevice : use(device->LiveSession());
}

// Returns whether an earlier node has allocated the memory and it has not been freed.
bool IsAllocated(AddressBook& addresses, const GraphMemory& memory) {
  const std::optional<Block> block = addresses.Find(memory.address());
  return block && block->buffer_id == memory.buffer_id();
}

}  // namespace

Code MakeAllocateWork(const MemoryNodeParameters& given, AllocateWork& work) {
  if (given.bytes == 0) return Code::kInvalidValue;
  if (const Code code = CheckPool(given.pool); code != Code::kSuccess) return code;
  if (const Code code = CheckAccess(given); code != Code::kSuccess) return code;
  return WithGraphMemories(given.pool.location.id, [&](const std::shared_ptr<Session>& session) {
    if (session == nullptr) {
      return Reject(Code::kInvalidContext, "node rejected: its device has no context");
    }
    Result<std::shared_ptr<GraphMemory>> memory =
        session->graph_memories()->Make(session->client(), given.bytes);
    if (!memory.ok()) return session->GetCode(memory.status());
    work.parameters = given;
    work.parameters.access = nullptr;  // Belongs to the program and is no longer needed.
    work.parameters.access_count = 0;
    work.parameters.address = (*memory)->address();
    work.memory = std::move(*memory);
    return Code::kSuccess;
  });
}

Code MakeFreeWork(DevicePointer address, FreeWork& work) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  for (int ordinal = 0; ordinal < driver.device_count(); ++ordinal) {
    const std::shared_ptr<Session> session = driver.DeviceAt(ordinal)->LiveSession();
    if (session == nullptr || !session->graph_memories()->BeginsAt(address)) continue;
    work.address = address;
    return Code::kSuccess;
  }
  return Reject(Code::kInvalidValue, "node rejected: no node of a graph allocates this address");
}

Code FreeLeftOver(const GraphExec::Plan& plan, bool may_free, const StreamChoice& stream) {
  AddressBook& addresses = stream->context().session().addresses();
  for (const std::shared_ptr<const Work>& work : plan) {
    const auto* const allocation = std::get_if<AllocateWork>(work.get());
    if (allocation == nullptr || !IsAllocated(addresses, *allocation->memory)) continue;
    if (!may_free) {
      return Reject(Code::kInvalidValue,
                    "launch rejected: memory of the previous launch is still allocated");
    }
    addresses.Remove(allocation->memory->address(), BlockKind::kDevice);
  }
  return Code::kSuccess;
}

Code Replay(const AllocateWork& work, StreamHandle handle) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  Context& context = stream->context();
  if (!work.memory->IsOf(context.session().graph_memories())) {
    return Reject(Code::kInvalidValue,
                  "launch rejected: its memory is of another device's session");
  }
  const bool is_free = context.session().addresses().Insert({.address = work.memory->address(),
                                                             .bytes = work.memory->bytes(),
                                                             .kind = BlockKind::kDevice,
                                                             .context_id = context.id(),
                                                             .buffer_id = work.memory->buffer_id()},
                                                            work.memory);
  return is_free ? Code::kSuccess
                 : Reject(Code::kInvalidValue, "launch rejected: its memory is still allocated");
}

Code Replay(const FreeWork& work, StreamHandle handle) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  const bool is_freed =
      stream->context().session().addresses().Remove(work.address, BlockKind::kDevice);
  return is_freed ? Code::kSuccess
                  : Reject(Code::kInvalidValue,
                           "launch rejected: memory that it frees is not allocated");
}

// ---- queries; memory is reserved as long as its node exists

Code DeviceGetGraphMemAttribute(int device, int attribute, void* value) {
  if (AnyNull(value) || attribute < kUsedBytes || attribute > kReservedBytesHigh) {
    return Code::kInvalidValue;
  }
  return WithGraphMemories(device, [&](const std::shared_ptr<Session>& session) {
    GraphMemories::Bytes bytes;
    if (session != nullptr) bytes = session->graph_memories()->bytes();
    const bool is_now = attribute == kUsedBytes || attribute == kReservedBytes;
    *static_cast<std::uint64_t*>(value) = is_now ? bytes.now : bytes.high;
    return Code::kSuccess;
  });
}

Code DeviceSetGraphMemAttribute(int device, int attribute, void* value) {
  if (AnyNull(value) || (attribute != kUsedBytesHigh && attribute != kReservedBytesHigh) ||
      *static_cast<const std::uint64_t*>(value) != 0) {
    return Code::kInvalidValue;
  }
  return WithGraphMemories(device, [](const std::shared_ptr<Session>& session) {
    if (session != nullptr) session->graph_memories()->ForgetHigh();
    return Code::kSuccess;
  });
}

// A no-op, because only memory of existing graphs is kept.
Code DeviceGraphMemTrim(int device) {
  return WithGraphMemories(device, [](const std::shared_ptr<Session>&) { return Code::kSuccess; });
}

}  // namespace gpushared::drop_in
