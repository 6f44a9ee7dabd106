// SPDX-License-Identifier: Apache-2.0
// Devices and their properties.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/device_attributes.h"
#include "client_lib/drop_in/device_list.h"
#include "client_lib/drop_in/driver.h"

namespace gpushared::drop_in {
namespace {

// Calls `answer` with the properties of the device.
template <typename Answer>
Code Ask(int ordinal, const Answer& answer) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const CudaDevice* const device = driver.DeviceAt(ordinal);
  if (device == nullptr) return Code::kInvalidDevice;
  answer(device->properties());
  return Code::kSuccess;
}

// Truncates the text and always ends it with a NUL, as drivers do.
void CopyText(const std::string& text, char* to, int bytes) {
  to[text.copy(to, static_cast<std::size_t>(bytes) - 1)] = '\0';
}

// The devices are on no bus, so their ids have a domain that no machine uses.
constexpr unsigned kPciDomainOfOurs = 0xffff;
std::string PciBusId(int ordinal) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04X:%02X:00.0", kPciDomainOfOurs,
                static_cast<unsigned>(ordinal));
  return text.data();
}

}  // namespace

Code DeviceGet(int* device, int ordinal) {
  if (AnyNull(device)) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties&) { *device = ordinal; });
}

Code DeviceGetCount(int* count) {
  if (AnyNull(count)) return Code::kInvalidValue;
  const Code code = Driver::Get().Ready();
  if (code == Code::kSuccess) *count = Driver::Get().device_count();
  return code;
}

Code DeviceGetName(char* name, int bytes, int ordinal) {
  if (AnyNull(name) || bytes <= 0) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties& device) { CopyText(device.name, name, bytes); });
}

Code DeviceGetUuid(Uuid* uuid, int ordinal) {
  if (AnyNull(uuid)) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties& device) { *uuid = DeviceUuid(device); });
}

Code DeviceGetLuid(char*, unsigned*, int) { return Code::kNotSupported; }  // Windows only.

Code DeviceTotalMem(std::size_t* bytes, int ordinal) {
  if (AnyNull(bytes)) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties& device) { *bytes = device.memory_bytes; });
}

namespace {

// Determined by the session rather than the device, because contained clients have no virtual
// memory management.
int HasVirtualMemory(int ordinal) {
  const std::shared_ptr<Session> session = Driver::Get().DeviceAt(ordinal)->LiveSession();
  return session == nullptr || session->client().mapping_area().bytes != 0 ? 1 : 0;
}

}  // namespace

Code DeviceGetAttribute(int* value, int attribute, int ordinal) {
  if (AnyNull(value)) return Code::kInvalidValue;
  Code known = Code::kSuccess;
  const Code code = Ask(ordinal, [&](const DeviceProperties& device) {
    known = AttributeFor(device, attribute, *value);
    if (attribute == static_cast<int>(Attribute::kPciDomain)) *value = kPciDomainOfOurs;
    if (attribute == static_cast<int>(Attribute::kPciBus)) *value = ordinal;
    if (attribute == static_cast<int>(Attribute::kVirtualMemory))
      *value &= HasVirtualMemory(ordinal);
  });
  return code == Code::kSuccess ? known : code;
}

Code DeviceComputeCapability(int* major, int* minor, int ordinal) {
  if (AnyNull(major, minor)) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties& device) {
    *major = AttributeFor(device, Attribute::kComputeCapabilityMajor);
    *minor = AttributeFor(device, Attribute::kComputeCapabilityMinor);
  });
}

Code DeviceGetProperties(LegacyDeviceProperties* properties, int ordinal) {
  if (AnyNull(properties)) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties& device) {
    const auto attribute = [&](Attribute id) { return AttributeFor(device, id); };
    *properties = {.threads_per_block_max = attribute(Attribute::kThreadsPerBlockMax),
                   .block_max = {attribute(Attribute::kBlockXMax), attribute(Attribute::kBlockYMax),
                                 attribute(Attribute::kBlockZMax)},
                   .grid_max = {attribute(Attribute::kGridXMax), attribute(Attribute::kGridYMax),
                                attribute(Attribute::kGridZMax)},
                   .shared_bytes_per_block = attribute(Attribute::kSharedBytesPerBlockMax),
                   .constant_bytes = attribute(Attribute::kConstantBytes),
                   .warp_threads = attribute(Attribute::kWarpThreads),
                   .pitch_bytes_max = attribute(Attribute::kPitchBytesMax),
                   .registers_per_block = attribute(Attribute::kRegistersPerBlockMax),
                   .clock_kilohertz = attribute(Attribute::kClockKilohertz),
                   .texture_alignment = attribute(Attribute::kTextureAlignment)};
  });
}

Code DeviceGetPciBusId(char* id, int bytes, int ordinal) {
  if (AnyNull(id) || bytes <= 0) return Code::kInvalidValue;
  return Ask(ordinal, [&](const DeviceProperties&) { CopyText(PciBusId(ordinal), id, bytes); });
}

Code DeviceGetByPciBusId(int* device, const char* id) {
  if (AnyNull(device, id)) return Code::kInvalidValue;
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  for (int ordinal = 0; ordinal < driver.device_count(); ++ordinal) {
    const std::string ours = PciBusId(ordinal);
    if (::strcasecmp(id, ours.c_str()) != 0) continue;
    *device = ordinal;
    return Code::kSuccess;
  }
  return Code::kInvalidDevice;
}

Code DeviceCanAccessPeer(int* can, int ordinal, int peer) {
  if (AnyNull(can)) return Code::kInvalidValue;
  if (const Code code = Ask(peer, [](const DeviceProperties&) {}); code != Code::kSuccess)
    return code;
  return Ask(ordinal, [&](const DeviceProperties&) { *can = 0; });
}

Code DeviceGetP2pAttribute(int* value, int attribute, int source, int destination) {
  if (attribute < 1 || attribute > 5 || source == destination) return Code::kInvalidValue;
  return DeviceCanAccessPeer(value, source, destination);
}

}  // namespace gpushared::drop_in
