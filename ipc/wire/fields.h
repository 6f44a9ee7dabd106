// SPDX-License-Identifier: Apache-2.0
// Messages as lists of fields. Each message describes itself once, in Visit(Fields&): its fields in
// the order of their bytes, each with its name, kind and limits. Its size, encoding, decoding with
// all checks, frame rule, fuzz target and row of the documentation come from that.

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

// One field of the part of a message that is always there.
struct Field {
  std::string name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t element_bytes = 0;  // Smaller than `bytes` for arrays.
  std::string limits;             // "0 to 1000"; empty: any value, or limits of its own elements.
};

// The shape of a message: its fields, and what else a frame may carry.
struct MessageLayout {
  std::vector<Field> fields;
  std::uint32_t bytes = 0;  // Of the fields.
  std::uint32_t tail_bytes_max = 0;
  std::uint32_t fds = 0;  // Exactly.
};

// The shape of a message, or of a struct within messages.
template <typename T>
const MessageLayout& GetLayout();

// The visitor of a message's fields. It writes them into a payload, reads them from one, or lists
// them, as its constructor says. The methods of the first group take a field each; `value` is read
// by a writer and set by a reader. Limits hold for readers: the first field that breaks one is
// remembered, with its name, value and limits, and nothing is read after it.
//
// Thread-compatible. The payload and the layout outlive the visitor.
class Fields {
 public:
  static constexpr std::uint64_t kAny = ~std::uint64_t{0};

  explicit Fields(const char* message) : mode_(Mode::kWrite), message_(message) {}
  Fields(const char* message, std::span<const std::byte> payload)
      : mode_(Mode::kRead), message_(message), unread_(payload) {}
  explicit Fields(MessageLayout& layout) : mode_(Mode::kList), layout_(&layout) {}

  // The protocol version, in front of everything else: in another version the rest may be laid out
  // differently. Another version is a kVersionMismatch.
  void Version();
  // An integer or an enumeration.
  template <typename T>
  void Number(const char* name, T& value, std::uint64_t minimum = 0, std::uint64_t maximum = kAny) {
    Plain(name, value);
    if (minimum == 0 && maximum == kAny) return;
    Bound(name, static_cast<std::uint64_t>(value), minimum, std::min(maximum, kMaxOf<T>));
  }
  // A number that both sides must agree on.
  template <typename T>
  void Constant(const char* name, T value) {
    const T agreed = value;
    Number(name, value, agreed, agreed);
  }
  // Zeros.
  template <typename T, std::size_t kCount = 1>
  void Reserved(const char* name = "reserved") {
    std::array<T, kCount> values = {};
    Plain(name, values);
    for (const T value : values) Bound(name, value, 0, 0);
  }
  void Flag(const char* name, bool& value);  // A byte, 0 or 1.
  // A number of type Wire up to `maximum`, or `absent`.
  template <typename Wire, typename T>
  void Optional(const char* name, std::optional<T>& value, Wire absent, std::uint64_t maximum) {
    Wire number = value ? static_cast<Wire>(*value) : absent;
    Plain(name, number);
    Bound(name, number == absent ? 0 : number, 0, maximum);
    if (absent > maximum) Or(absent);
    value.reset();
    if (number != absent) value = static_cast<T>(number);
  }
  // Text of at most bytes - 1 bytes that is safe to print, then zeros. Cut off by a writer.
  void Text(const char* name, std::string& text, std::size_t bytes);
  // Bytes as they are in memory.
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
  // A struct with a Visit of its own.
  template <typename T>
  void Struct(const char* name, T& value) {
    if (mode_ == Mode::kList) return List(name, GetLayout<T>().bytes, GetLayout<T>().bytes);
    path_.push_back({name, kNoIndex});
    value.Visit(*this);
    path_.pop_back();
  }

  // The tail, behind all fields. What Length returns is for Tail, and what Count does for Elements.
  // A text beyond `maximum` is cut off by a writer, at the end of a character.
  std::uint32_t Length(const char* name, std::string& text, std::uint32_t maximum);
  void Tail(std::string& text, std::uint32_t bytes);
  // More than `maximum` fail a writer, too, with kLimitExceeded.
  std::uint32_t Count(const char* name, std::size_t count, std::uint32_t maximum);
  template <typename T>
  void Elements(const char* name, std::vector<T>& elements, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count && ok(); ++i) {
      // An element is made when the one before it was there, so memory follows bytes.
      if (mode_ == Mode::kRead) elements.emplace_back();
      path_.push_back({name, i});
      elements[i].Visit(*this);
      path_.pop_back();
    }
  }
  // A text within an element; its length is the field. The limit is one of writers, too.
  void String(const char* name, std::string& text, std::uint32_t maximum);
  // All of the tail; a limit of writers, too.
  void TailAtMost(std::uint32_t bytes);

  // Descriptors that come with the message.
  void Descriptors(std::uint32_t count);

  // Rules of readers, for what a field's own limits cannot say.
  void Range(const char* name, std::uint64_t value, std::uint64_t minimum, std::uint64_t maximum);
  void Zero(const char* name, std::uint64_t value) { Range(name, value, 0, 0); }
  void Multiple(const char* name, std::uint64_t value, std::uint64_t step);
  void Require(bool holds, const char* otherwise);
  // For writers and readers.
  void Limit(const char* name, std::uint64_t value, std::uint64_t maximum);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::vector<std::byte> TakePayload() && { return std::move(payload_); }
  // What is wrong with all that was read, bytes left over included.
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
  void Or(std::uint64_t value);  // Lists one more value that is allowed.
  void Write(std::span<const std::byte> bytes);
  void Read(std::span<std::byte> bytes);
  // Of the field `name` of the struct that is visited, or of the whole message.
  void Reject(const char* name, const std::string& reason);
  void Reject(const std::string& reason);

  const Mode mode_;
  const char* const message_ = "";
  std::span<const std::byte> unread_;
  std::vector<std::byte> payload_;
  std::size_t payload_bytes_max_ = ~std::size_t{0};
  MessageLayout* const layout_ = nullptr;
  std::vector<Step> path_;  // From the message to the struct that is visited.
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

// Payload of a frame of type Message::kType. Checks no limits but those of the writer.
template <typename Message>
std::vector<std::byte> Encode(Message message) {
  Fields fields(Message::kName);
  message.Visit(fields);
  return std::move(fields).TakePayload();
}

// The value in the payload of a frame of type Message::kType, the only way from a peer's bytes to
// values: kProtocolViolation (kVersionMismatch for another version) for what no honest peer sends.
// The caller has looked at the frame's type.
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
