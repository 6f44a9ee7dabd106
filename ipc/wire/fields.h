// SPDX-License-Identifier: Apache-2.0
// Messages as lists of fields. Each message describes itself once, in Visit(Fields&): its fields in
// the order of their bytes, each with name, kind and limits. Size, encoding, decoding with all
// checks, frame rule, fuzz target and documentation row are derived from this description.

#ifndef GPUSHARED_IPC_WIRE_FIELDS_H_
#define GPUSHARED_IPC_WIRE_FIELDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

namespace gpushared::ipc {

// Field in the fixed part of a message.
struct Field {
  std::string name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t element_bytes = 0;  // Size of one element; smaller than `bytes` for arrays.
  // Such as "0 to 1000"; empty if any value is allowed or if only the elements have limits.
  std::string limits;
};

// Layout of a message: its fields and the rest of the frame.
struct MessageLayout {
  std::vector<Field> fields;
  std::uint32_t bytes = 0;  // Size of the fixed part.
  std::uint32_t tail_bytes_max = 0;
  std::uint32_t fds = 0;  // Exact number of descriptors.
};

// Returns the layout of a message, or of a struct within messages.
template <typename T>
const MessageLayout& GetLayout();

// Visitor of a message's fields. Depending on the constructor, the visitor writes the fields to a
// payload, reads them from a payload, or lists them. Each method from Version to Struct handles one
// field: a writer reads `value`, a reader sets it. Readers enforce limits: the first violation is
// recorded with the field's name, value and limits, and nothing is read after it.
//
// Thread-compatible. The payload and the layout must outlive the visitor.
class Fields {
 public:
  static constexpr std::uint64_t kAny = ~std::uint64_t{0};

  explicit Fields(const char* message) : mode_(Mode::kWrite), message_(message) {}
  Fields(const char* message, std::span<const std::byte> payload)
      : mode_(Mode::kRead), message_(message), unread_(payload) {}
  explicit Fields(MessageLayout& layout) : mode_(Mode::kList), layout_(&layout) {}

  // Protocol version. Precedes all other fields, because another version may have another layout. A
  // different version is kVersionMismatch.
  void Version();
  // Integer or enumeration.
  template <typename T>
  void Number(const char* name, T& value, std::uint64_t minimum = 0, std::uint64_t maximum = kAny) {
    Plain(name, value);
    if (minimum == 0 && maximum == kAny) return;
    Bound(name, static_cast<std::uint64_t>(value), minimum, std::min(maximum, kMaxOf<T>));
  }
  // Number that both sides must agree on.
  template <typename T>
  void Constant(const char* name, T value) {
    const T agreed = value;
    Number(name, value, agreed, agreed);
  }
  // Zero bytes.
  template <typename T, std::size_t kCount = 1>
  void Reserved(const char* name = "reserved") {
    std::array<T, kCount> values = {};
    Plain(name, values);
    for (const T value : values) Bound(name, value, 0, 0);
  }
  void Flag(const char* name, bool& value);  // A byte, 0 or 1.
  // Number of type Wire, at most `maximum`, or `absent`.
  template <typename Wire, typename T>
  void Optional(const char* name, std::optional<T>& value, Wire absent, std::uint64_t maximum) {
    Wire number = value ? static_cast<Wire>(*value) : absent;
    Plain(name, number);
    Bound(name, number == absent ? 0 : number, 0, maximum);
    if (absent > maximum) Or(absent);
    value.reset();
    if (number != absent) value = static_cast<T>(number);
  }
  // Printable text of at most bytes - 1 bytes, followed by zeros. Truncated by a writer.
  void Text(const char* name, std::string& text, std::size_t bytes);
  // Value encoded as its bytes in memory.
  template <typename T>
  void Plain(const char* name, T& value) {
    static_assert(std::has_unique_object_representations_v<T>, "padding would carry old memory");
    std::size_t element = sizeof value;
    if constexpr (requires { typename T::value_type; }) element = sizeof(typename T::value_type);
    Piece(name, std::as_writable_bytes(std::span(&value, 1)), element);
  }
  template <typename T, std::size_t kCount>
  void Each(const char* name, std::array<T, kCount>& values, std::uint64_t minimum,
            const std::array<T, kCount>& maxima) {
    Plain(name, values);
    for (std::size_t i = 0; i < kCount; ++i) Bound(name, values[i], minimum, maxima[i]);
  }
  // Struct that has its own Visit.
  template <typename T>
  void Struct(const char* name, T& value) {
    if (mode_ == Mode::kList) return List(name, GetLayout<T>().bytes, GetLayout<T>().bytes);
    path_.push_back({name, kNoIndex});
    value.Visit(*this);
    path_.pop_back();
  }

  // The tail, which follows all fields. The result of Length is passed to Tail, and that of Count
  // to Elements. A writer truncates text beyond `maximum`, at a character boundary.
  std::uint32_t Length(const char* name, std::string& text, std::uint32_t maximum);
  void Tail(std::string& text, std::uint32_t bytes);
  // Fails (kLimitExceeded), even in a writer, if there are more than `maximum` elements.
  std::uint32_t Count(const char* name, std::size_t count, std::uint32_t maximum);
  template <typename T>
  void Elements(const char* name, std::vector<T>& elements, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count && ok(); ++i) {
      // Elements are added one by one as their bytes are read, so that a false count cannot
      // allocate memory.
      if (mode_ == Mode::kRead) elements.emplace_back();
      path_.push_back({name, i});
      elements[i].Visit(*this);
      path_.pop_back();
    }
  }
  // Text within an element; the field is its length. Writers enforce the limit as well.
  void String(const char* name, std::string& text, std::uint32_t maximum);
  // Limits the length of the whole tail, also in a writer.
  void TailAtMost(std::uint32_t bytes);

  // Descriptors that accompany the message.
  void Descriptors(std::uint32_t count);

  // Rules for readers that the limits of a single field cannot express.
  void Range(const char* name, std::uint64_t value, std::uint64_t minimum, std::uint64_t maximum);
  void Zero(const char* name, std::uint64_t value) { Range(name, value, 0, 0); }
  void Multiple(const char* name, std::uint64_t value, std::uint64_t step);
  void Require(bool holds, const char* otherwise);
  // Limit that writers enforce as well.
  void Limit(const char* name, std::uint64_t value, std::uint64_t maximum);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::vector<std::byte> TakePayload() && { return std::move(payload_); }
  // Returns the first violation, including excess bytes.
  Status End();

 private:
  enum class Mode { kWrite, kRead, kList };
  static constexpr std::uint32_t kNoIndex = ~std::uint32_t{0};
  struct Step {
    const char* name = "";
    std::uint32_t index = kNoIndex;
  };

  template <typename T>
  static constexpr std::uint64_t kMaxOf = kAny >> (64 - 8 * sizeof(T));

  void Piece(const char* name, std::span<std::byte> bytes, std::size_t element_bytes);
  void List(const char* name, std::size_t bytes, std::size_t element_bytes);
  void Bound(const char* name, std::uint64_t value, std::uint64_t minimum, std::uint64_t maximum);
  void Or(std::uint64_t value);  // Adds an allowed value to the last listed field.
  void Write(std::span<const std::byte> bytes);
  void Read(std::span<std::byte> bytes);
  // Records a violation of field `name` of the current struct, or of the whole message.
  void Reject(const char* name, const std::string& reason);
  void Reject(const std::string& reason);

  const Mode mode_;
  const char* const message_ = "";
  std::span<const std::byte> unread_;
  std::vector<std::byte> payload_;
  std::size_t payload_bytes_max_ = ~std::size_t{0};
  MessageLayout* const layout_ = nullptr;
  std::vector<Step> path_;  // Structs from the message down to the current one.
  Status status_;
};

template <typename T>
const MessageLayout& GetLayout() {
  static const MessageLayout layout = [] {
    MessageLayout made;
    Fields fields(made);
    T().Visit(fields);
    return made;
  }();
  return layout;
}

// Encodes a message as the payload of a frame of type Message::kType. Checks only the limits that
// apply to writers.
template <typename Message>
std::vector<std::byte> Encode(Message message) {
  Fields fields(Message::kName);
  message.Visit(fields);
  return std::move(fields).TakePayload();
}

// Decodes the payload of a frame of type Message::kType; the only way in which a peer's bytes
// become a message. kVersionMismatch for another protocol version, kProtocolViolation for any other
// message that no correct peer sends. The caller has checked the type of the frame.
template <typename Message>
Result<Message> Decode(std::span<const std::byte> payload) {
  Fields fields(Message::kName, payload);
  Message message;
  message.Visit(fields);
  if (Status status = fields.End(); !status.ok()) return status;
  return message;
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_FIELDS_H_
