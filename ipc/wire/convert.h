// SPDX-License-Identifier: Apache-2.0
// Shared by the encoders and decoders of control and channel messages; not for others.

#ifndef GPUSHARED_IPC_WIRE_CONVERT_H_
#define GPUSHARED_IPC_WIRE_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gpushared/status.h"

#include "ipc/wire/bytes.h"
#include "ipc/wire/control.h"

namespace gpushared::ipc {

HelloWire ToWire(const Hello& hello);
AdminWire ToWire(const Admin& admin);
DeviceWire ToWire(const DeviceDescription& device);

// Checks the fields of one message and remembers the first that is wrong, as a sentence.
//
// Thread-compatible.
class MessageChecks {
 public:
  explicit MessageChecks(const char* message) : message_(message) {}

  // The first word of the payload is our protocol version. Before anything else is looked at:
  // the rest may be laid out differently in another version.
  void Version(std::span<const std::byte> payload);
  // Reads the fixed part.
  template <typename Wire>
  void Fixed(ByteReader& reader, Wire& wire) {
    if (!reader.Get(wire)) Refuse("it is too short");
  }
  void Range(const char* field, std::uint64_t value, std::uint64_t minimum, std::uint64_t maximum);
  void Zero(const char* field, std::uint64_t value) { Range(field, value, 0, 0); }
  void Zero(const char* field, std::span<const std::uint8_t> values) {
    for (const std::uint8_t value : values) Zero(field, value);
  }
  // A fixed-size text field, safe to print.
  void PrintableText(const char* field, std::span<const char> value, std::string& text);
  // Everything was read: no byte more, no byte less.
  void End(const ByteReader& reader);
  void Refuse(const std::string& reason);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  const char* message_;
  Status status_;
};

inline constexpr auto kStatusCodeMax = static_cast<std::uint64_t>(StatusCode::kInternal);
inline constexpr auto kClassMax = static_cast<std::uint64_t>(ClientClass::kLow);

// Checks and converts; on failure `checks` says so and the value is unspecified.
Hello FromWire(const HelloWire& wire, MessageChecks& checks);
Admin FromWire(const AdminWire& wire, MessageChecks& checks);
DeviceDescription FromWire(const DeviceWire& wire, MessageChecks& checks);
// The text after a TextWire.
Status TextFromWire(const TextWire& wire, StatusCode code_minimum, std::size_t bytes_max,
                    ByteReader& reader, MessageChecks& checks);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_CONVERT_H_
