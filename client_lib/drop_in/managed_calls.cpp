// SPDX-License-Identifier: Apache-2.0
// Hints about managed memory. They are checked and stored but have no effect, because the next
// launch sends the program's writes to the device, and the next wait fetches the writes of kernels.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

// CUmem_advise.
enum Advice : int {
  kSetReadMostly = 1,
  kUnsetReadMostly = 2,
  kSetPreferredLocation = 3,
  kUnsetPreferredLocation = 4,
  kSetAccessedBy = 5,
  kUnsetAccessedBy = 6,
};
// CUmem_range_attribute.
enum RangeAttribute : int {
  kReadMostly = 1,
  kPreferredLocation = 2,
  kAccessedBy = 3,
  kLastPrefetchLocation = 4,
  kPreferredLocationType = 5,
  kPreferredLocationId = 6,
  kLastPrefetchLocationType = 7,
  kLastPrefetchLocationId = 8,
};

constexpr int kHostOrdinal = -1;     // CU_DEVICE_CPU.
constexpr int kInvalidOrdinal = -2;  // CU_DEVICE_INVALID.
constexpr int kHostNuma = 3;         // CU_MEM_LOCATION_TYPE_HOST_NUMA.
constexpr int kHostNumaCurrent = 4;
constexpr std::size_t kBatchMax = std::size_t{1} << 20;  // Longer lists are invalid.

MemoryLocation GetLocation(int device) {
  if (device == kHostOrdinal) return {LocationType::kHost, 0};
  return {LocationType::kDevice, device};
}

Code CheckLocation(const MemoryLocation& location) {
  switch (static_cast<int>(location.type)) {
    case static_cast<int>(LocationType::kDevice):
      return Driver::Get().DeviceAt(location.id) == nullptr ? Code::kInvalidDevice : Code::kSuccess;
    case static_cast<int>(LocationType::kHost):
    case kHostNuma:
    case kHostNumaCurrent:
      return Code::kSuccess;
    default:
      return Code::kInvalidValue;
  }
}

// Returns the ordinal of a location in the older attributes.
int GetOrdinal(const MemoryLocation& location) {
  if (location.type == LocationType::kDevice) return location.id;
  return static_cast<int>(location.type) == 0 ? kInvalidOrdinal : kHostOrdinal;
}

void Take(Advice advice, const MemoryLocation& location, ManagedHints& hints) {
  switch (advice) {
    case kSetReadMostly:
    case kUnsetReadMostly:
      hints.is_read_mostly = advice == kSetReadMostly;
      break;
    case kSetPreferredLocation:
      hints.preferred = location;
      break;
    case kUnsetPreferredLocation:
      hints.preferred = ManagedHints::kNowhere;
      break;
    case kSetAccessedBy:
    case kUnsetAccessedBy:
      std::erase(hints.accessed_by, GetOrdinal(location));
      if (advice == kSetAccessedBy) hints.accessed_by.push_back(GetOrdinal(location));
      break;
  }
}

Code Change(const Current& current, DevicePointer address, std::size_t bytes,
            const std::function<void(ManagedHints&)>& change) {
  if (bytes == 0) return Code::kInvalidValue;
  if (current->session().addresses().ChangeHints(address, bytes, change)) return Code::kSuccess;
  return Reject(Code::kInvalidValue, "hint rejected: " + std::to_string(bytes) + " bytes at " +
                                         std::to_string(address) +
                                         " are not inside one managed allocation");
}

// Checks the locations of a batch. Each applies to the ranges from its start up to the start of the
// next one.
Code CheckPlaces(std::span<const MemoryLocation> locations, std::span<const std::size_t> starts,
                 std::size_t count) {
  if (locations.empty() || locations.size() > count || starts.front() != 0) {
    return Code::kInvalidValue;
  }
  for (std::size_t i = 0; i < locations.size(); ++i) {
    if (const Code code = CheckLocation(locations[i]); code != Code::kSuccess) return code;
    if (starts[i] >= count || (i != 0 && starts[i] <= starts[i - 1])) return Code::kInvalidValue;
  }
  return Code::kSuccess;
}

bool IsBatch(const DevicePointer* addresses, const std::size_t* bytes, std::size_t count,
             unsigned long long flags) {
  return !AnyNull(addresses, bytes) && count != 0 && count <= kBatchMax && flags == 0;
}

Code PutNumber(void* data, std::size_t data_bytes, int number) {
  if (data_bytes != sizeof number) return Code::kInvalidValue;
  std::memcpy(data, &number, sizeof number);
  return Code::kSuccess;
}

Code PutOrdinals(void* data, std::size_t data_bytes, std::span<const int> ordinals) {
  if (data_bytes == 0 || data_bytes % sizeof(int) != 0) return Code::kInvalidValue;
  for (std::size_t i = 0; i < data_bytes / sizeof(int); ++i) {
    const int ordinal = i < ordinals.size() ? ordinals[i] : kInvalidOrdinal;
    std::memcpy(static_cast<char*>(data) + i * sizeof ordinal, &ordinal, sizeof ordinal);
  }
  return Code::kSuccess;
}

Code PutAttribute(void* data, std::size_t data_bytes, int attribute, const ManagedHints& hints) {
  switch (attribute) {
    case kReadMostly:
      return PutNumber(data, data_bytes, hints.is_read_mostly ? 1 : 0);
    case kPreferredLocation:
      return PutNumber(data, data_bytes, GetOrdinal(hints.preferred));
    case kAccessedBy:
      return PutOrdinals(data, data_bytes, hints.accessed_by);
    case kLastPrefetchLocation:
      return PutNumber(data, data_bytes, GetOrdinal(hints.prefetched));
    case kPreferredLocationType:
      return PutNumber(data, data_bytes, static_cast<int>(hints.preferred.type));
    case kPreferredLocationId:
      return PutNumber(data, data_bytes, hints.preferred.id);
    case kLastPrefetchLocationType:
      return PutNumber(data, data_bytes, static_cast<int>(hints.prefetched.type));
    case kLastPrefetchLocationId:
      return PutNumber(data, data_bytes, hints.prefetched.id);
    default:
      return Code::kInvalidValue;
  }
}

}  // namespace

Code MemAdvise(DevicePointer address, std::size_t bytes, int advice, MemoryLocation location) {
  if (advice < kSetReadMostly || advice > kUnsetAccessedBy) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const bool has_location = advice == kSetPreferredLocation || advice >= kSetAccessedBy;
  const Code code = has_location ? CheckLocation(location) : Code::kSuccess;
  if (code != Code::kSuccess) return code;
  return Change(current, address, bytes,
                [&](ManagedHints& hints) { Take(static_cast<Advice>(advice), location, hints); });
}

Code MemAdviseV1(DevicePointer address, std::size_t bytes, int advice, int device) {
  return MemAdvise(address, bytes, advice, GetLocation(device));
}

Code MemPrefetchAsync(DevicePointer address, std::size_t bytes, MemoryLocation location,
                      unsigned flags, StreamHandle handle) {
  if (flags != 0) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  if (const Code code = CheckLocation(location); code != Code::kSuccess) return code;
  return Change(current, address, bytes, [&](ManagedHints& hints) { hints.prefetched = location; });
}

Code MemPrefetchAsyncV1(DevicePointer address, std::size_t bytes, int device, StreamHandle stream) {
  return MemPrefetchAsync(address, bytes, GetLocation(device), 0, stream);
}

// Ranges before an invalid one keep their hint.
Code MemPrefetchBatchAsync(DevicePointer* addresses, std::size_t* bytes, std::size_t count,
                           MemoryLocation* locations, std::size_t* location_starts,
                           std::size_t location_count, unsigned long long flags,
                           StreamHandle stream) {
  if (!IsBatch(addresses, bytes, count, flags) || AnyNull(locations, location_starts) ||
      location_count > count) {
    return Code::kInvalidValue;
  }
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  const Code code =
      CheckPlaces({locations, location_count}, {location_starts, location_count}, count);
  if (code != Code::kSuccess) return code;
  std::size_t place = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (place + 1 < location_count && location_starts[place + 1] == i) ++place;
    const Code done = MemPrefetchAsync(addresses[i], bytes[i], locations[place], 0, stream);
    if (done != Code::kSuccess) return done;
  }
  return Code::kSuccess;
}

// Discarded memory has undefined contents, so leaving it unchanged is correct.
Code MemDiscardBatchAsync(DevicePointer* addresses, std::size_t* bytes, std::size_t count,
                          unsigned long long flags, StreamHandle handle) {
  if (!IsBatch(addresses, bytes, count, flags)) return Code::kInvalidValue;
  const Current current;
  const StreamChoice stream(current, handle);
  if (const Code code = stream.Allowed(); code != Code::kSuccess) return code;
  for (std::size_t i = 0; i < count; ++i) {
    const Code code = Change(current, addresses[i], bytes[i], [](ManagedHints&) {});
    if (code != Code::kSuccess) return code;
  }
  return Code::kSuccess;
}

Code MemDiscardAndPrefetchBatchAsync(DevicePointer* addresses, std::size_t* bytes,
                                     std::size_t count, MemoryLocation* locations,
                                     std::size_t* location_starts, std::size_t location_count,
                                     unsigned long long flags, StreamHandle stream) {
  return MemPrefetchBatchAsync(addresses, bytes, count, locations, location_starts, location_count,
                               flags, stream);
}

Code MemRangeGetAttribute(void* data, std::size_t data_bytes, int attribute, DevicePointer address,
                          std::size_t bytes) {
  if (AnyNull(data)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  ManagedHints known;
  const Code code =
      Change(current, address, bytes, [&](const ManagedHints& hints) { known = hints; });
  return code == Code::kSuccess ? PutAttribute(data, data_bytes, attribute, known) : code;
}

Code MemRangeGetAttributes(void** data, std::size_t* data_bytes, int* attributes, std::size_t count,
                           DevicePointer address, std::size_t bytes) {
  if (count == 0 || count > kBatchMax || AnyNull(data, data_bytes, attributes)) {
    return Code::kInvalidValue;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Code code = MemRangeGetAttribute(data[i], data_bytes[i], attributes[i], address, bytes);
    if (code != Code::kSuccess) return code;
  }
  return Code::kSuccess;
}

}  // namespace gpushared::drop_in
