// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: addresses without memory, memory without addresses, and mappings
// between them.
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gpushared/limits.h"

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr int kPosixFileHandle = 1;           // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
constexpr std::size_t kAccessListMax = 4096;  // Longer lists of devices are invalid.

std::shared_ptr<Allocation> FindAllocation(std::uint64_t handle) {
  return HeldAllocations().Find(reinterpret_cast<AllocationHandle>(handle));
}

bool IsWholeSteps(std::uint64_t bytes) { return bytes % kMapPageBytes == 0; }

Code CheckProperties(const AllocationProperties& properties) {
  if (properties.type != AllocationType::kPinned || properties.win32_handle_metadata != nullptr) {
    return Code::kInvalidValue;
  }
  if (properties.location.type != LocationType::kDevice) {
    return Reject(Code::kNotSupported, "memory rejected: only device memory can be allocated");
  }
  if (Driver::Get().DeviceAt(properties.location.id) == nullptr) return Code::kInvalidDevice;
  if ((properties.requested_handle_types & ~kPosixFileHandle) != 0 ||
      properties.flags.gpu_direct_rdma != 0 || properties.flags.usage != 0) {
    return Reject(
        Code::kNotSupported,
        "memory rejected: sharing with other machines and use for sparse tiles are not supported");
  }
  return Code::kSuccess;
}

// Checks that the current context is on the device and that its session can map memory.
Code CheckHere(const Current& current, int ordinal) {
  if (current->ordinal() != ordinal) {
    return Reject(Code::kNotSupported, "memory of device " + std::to_string(ordinal) +
                                           " rejected: the current context is of device " +
                                           std::to_string(current->ordinal()) +
                                           ", and memory can be mapped only on its own device");
  }
  if (current->session().client().mapping_area().bytes != 0) return Code::kSuccess;
  return Reject(
      Code::kNotSupported,
      "virtual memory rejected: the device does not support it, or this client is contained "
      "(memory = \"contain\")");
}

// Returns the result of a call of VirtualMemory, which returned `code` and set `why`: the driver's
// code for `why` if that is an error, otherwise `code`.
Code Answer(const Current& current, Code code, const Status& why) {
  return why.ok() ? code : current.GetCode(why);
}

}  // namespace

Code MemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties,
                                 int option) {
  if (AnyNull(bytes, properties) || option < 0 || option > 1) return Code::kInvalidValue;
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  if (const Code code = CheckProperties(*properties); code != Code::kSuccess) return code;
  *bytes = kMapPageBytes;
  return Code::kSuccess;
}

Code MemAddressReserve(DevicePointer* address, std::size_t bytes, std::size_t alignment,
                       DevicePointer wanted, std::uint64_t flags) {
  if (AnyNull(address) || bytes == 0 || !IsWholeSteps(bytes) || flags != 0) {
    return Code::kInvalidValue;
  }
  if (alignment != 0 && !std::has_single_bit(alignment)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  if (const Code code = CheckHere(current, current->ordinal()); code != Code::kSuccess) return code;
  const Code code = current->session().virtual_memory().Reserve(bytes, alignment, wanted, *address);
  if (code == Code::kSuccess) return code;
  return Reject(code, "reservation rejected: " + std::to_string(bytes) +
                          " bytes of addresses asked, this client has " +
                          std::to_string(current->session().client().mapping_area().bytes) +
                          " in all");
}

Code MemAddressFree(DevicePointer address, std::size_t bytes) {
  const Current current;
  if (!current.ok()) return current.code();
  return current->session().virtual_memory().FreeReserved(address, bytes);
}

Code MemCreate(std::uint64_t* handle, std::size_t bytes, const AllocationProperties* properties,
               std::uint64_t flags) {
  if (AnyNull(handle, properties) || bytes == 0 || !IsWholeSteps(bytes) || flags != 0) {
    return Code::kInvalidValue;
  }
  const Current current;
  if (!current.ok()) return current.code();
  if (const Code code = CheckProperties(*properties); code != Code::kSuccess) return code;
  const int ordinal = properties->location.id;
  if (const Code code = CheckHere(current, ordinal); code != Code::kSuccess) return code;
  const Result<AllocationHandle> made = current->session().virtual_memory().Create(ordinal, bytes);
  if (!made.ok()) return current.GetCode(made.status());
  *handle = reinterpret_cast<std::uint64_t>(*made);
  return Code::kSuccess;
}

Code MemRelease(std::uint64_t handle) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<Allocation> allocation = FindAllocation(handle);
  return allocation != nullptr && allocation->Release() ? Code::kSuccess : Code::kInvalidValue;
}

Code MemRetainAllocationHandle(std::uint64_t* handle, void* address) {
  if (AnyNull(handle)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const std::optional<VirtualMemory::Placement> there =
      current->session().virtual_memory().At(reinterpret_cast<std::uint64_t>(address));
  if (!there) return Code::kInvalidValue;
  const AllocationHandle retained = Allocation::Retain(there->allocation);
  if (retained == nullptr) return Code::kOutOfMemory;
  *handle = reinterpret_cast<std::uint64_t>(retained);
  return Code::kSuccess;
}

Code MemGetAllocationPropertiesFromHandle(AllocationProperties* properties, std::uint64_t handle) {
  if (AnyNull(properties)) return Code::kInvalidValue;
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<Allocation> allocation = FindAllocation(handle);
  if (allocation == nullptr) return Code::kInvalidValue;
  *properties = {};
  properties->location = {LocationType::kDevice, allocation->ordinal()};
  return Code::kSuccess;
}

// Drivers accept no offset either; handles are always mapped completely.
Code MemMap(DevicePointer address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
            std::uint64_t flags) {
  if (offset != 0 || flags != 0 || !IsWholeSteps(address)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const std::shared_ptr<Allocation> allocation = FindAllocation(handle);
  if (allocation == nullptr || bytes == 0 || bytes > allocation->bytes()) {
    return Code::kInvalidValue;
  }
  VirtualMemory& memory = current->session().virtual_memory();
  if (bytes != allocation->bytes() || !memory.Has(*allocation)) {
    return Reject(Code::kNotSupported,
                  "mapping rejected: a handle must be mapped completely, and on its own device");
  }
  return memory.Place(address, allocation);
}

Code MemUnmap(DevicePointer address, std::size_t bytes) {
  const Current current;
  if (!current.ok()) return current.code();
  if (const Code code = RejectWhileCapturing(); code != Code::kSuccess) return code;
  Status why = Status::Ok();
  const Code code = current->session().virtual_memory().Remove(address, bytes, why);
  return Answer(current, code, why);
}

Code MemSetAccess(DevicePointer address, std::size_t bytes, const AccessDescription* list,
                  std::size_t count) {
  if (AnyNull(list) || count == 0 || count > kAccessListMax) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  if (const Code code = RejectWhileCapturing(); code != Code::kSuccess) return code;
  std::optional<bool> may_access;
  for (const AccessDescription& each : std::span(list, count)) {
    const bool is_here =
        each.location.type == LocationType::kDevice && each.location.id == current->ordinal();
    if (!is_here && each.access == Access::kNone) continue;
    if (!is_here || (each.access != Access::kNone && each.access != Access::kReadWrite)) {
      return Reject(
          Code::kNotSupported,
          "access rejected: only the own device can have access, and only read and write access");
    }
    may_access = each.access == Access::kReadWrite;
  }
  VirtualMemory& memory = current->session().virtual_memory();
  // The list does not mention this device, so its access remains unchanged.
  if (!may_access) return memory.At(address) ? Code::kSuccess : Code::kInvalidValue;
  Status why = Status::Ok();
  const Code code = memory.SetAccess(address, bytes, *may_access, why);
  return Answer(current, code, why);
}

Code MemGetAccess(std::uint64_t* access, const MemoryLocation* location, DevicePointer address) {
  if (AnyNull(access, location)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const std::optional<VirtualMemory::Placement> there =
      current->session().virtual_memory().At(address);
  if (!there) return Code::kInvalidValue;
  const bool is_here =
      location->type == LocationType::kDevice && location->id == current->ordinal();
  *access = static_cast<std::uint64_t>(is_here && there->is_accessible ? Access::kReadWrite
                                                                       : Access::kNone);
  return Code::kSuccess;
}

Code MemExportToShareableHandle(void* shareable, std::uint64_t handle, int type,
                                std::uint64_t flags) {
  if (AnyNull(shareable) || flags != 0 || type == 0) return Code::kInvalidValue;
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  if (FindAllocation(handle) == nullptr) return Code::kInvalidValue;
  return Reject(
      Code::kNotSupported,
      "export rejected: sessions share no memory, because it would outlive its owner's quota");
}

Code MemImportFromShareableHandle(std::uint64_t* handle, void*, int) {
  if (AnyNull(handle)) return Code::kInvalidValue;
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  return Reject(Code::kNotSupported, "import rejected: sessions share no memory");
}

}  // namespace gpushared::drop_in
