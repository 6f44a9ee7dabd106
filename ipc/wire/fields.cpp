// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/fields.h"

#include <bit>
#include <cstring>

#include "ipc/wire/bytes.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {
namespace {

std::string LimitsText(std::uint64_t minimum, std::uint64_t maximum) {
  std::string text = std::to_string(minimum);
  if (maximum > minimum) text += " to " + std::to_string(maximum);
  return text;
}

// Formats large powers of two in the form "2^28".
std::string ListedNumber(std::uint64_t number) {
  const bool is_long = number >= 65536 && std::has_single_bit(number);
  return is_long ? "2^" + std::to_string(std::countr_zero(number)) : std::to_string(number);
}

}  // namespace

void Fields::Version() {
  std::uint32_t version = kProtocolVersion;
  if (mode_ != Mode::kRead || !path_.empty()) return Constant("version", version);
  Plain("version", version);
  if (!ok() || version == kProtocolVersion) return;
  status_ = Status(StatusCode::kVersionMismatch,
                   std::string(message_) + " rejected: it speaks protocol version " +
                       std::to_string(version) + ", this side speaks version " +
                       std::to_string(kProtocolVersion) +
                       "; client library and server must come from matching releases");
}

void Fields::Flag(const char* name, bool& value) {
  std::uint8_t byte = value ? 1 : 0;
  Number(name, byte, 0, 1);
  value = byte == 1;
}

void Fields::Text(const char* name, std::string& text, std::size_t bytes) {
  std::string padded(CutText(text, bytes - 1));
  padded.resize(bytes);
  Piece(name, std::as_writable_bytes(std::span(padded)), 1);
  if (mode_ == Mode::kList) layout_->fields.back().limits = "text";
  if (mode_ != Mode::kRead || !ok()) return;
  if (!GetFixedText(padded, text)) {
    Reject(name,
           "is not filled up with zeros after at most " + std::to_string(bytes - 1) + " bytes");
  } else if (!IsPrintableText(text)) {
    Reject(name, "is not printable UTF-8");
  }
}

std::uint32_t Fields::Length(const char* name, std::string& text, std::uint32_t maximum) {
  if (mode_ == Mode::kWrite) text.resize(CutText(text, maximum).size());
  auto bytes = static_cast<std::uint32_t>(text.size());
  Number(name, bytes, 0, maximum);
  if (mode_ == Mode::kList) layout_->tail_bytes_max += maximum;
  return bytes;
}

void Fields::Tail(std::string& text, std::uint32_t bytes) {
  if (mode_ == Mode::kWrite) Write(std::as_bytes(std::span(text)));
  if (mode_ != Mode::kRead || !ok()) return;
  if (bytes > unread_.size()) return Reject("it is too short");
  text.resize(bytes);
  Read(std::as_writable_bytes(std::span(text)));
}

std::uint32_t Fields::Count(const char* name, std::size_t count, std::uint32_t maximum) {
  Limit(name, count, maximum);
  auto number = static_cast<std::uint32_t>(count);
  Number(name, number, 0, maximum);
  return number;
}

void Fields::String(const char* name, std::string& text, std::uint32_t maximum) {
  auto bytes = static_cast<std::uint32_t>(text.size());
  Plain(name, bytes);
  Limit(name, bytes, maximum);
  Tail(text, bytes);
}

void Fields::TailAtMost(std::uint32_t bytes) {
  if (mode_ == Mode::kWrite) payload_bytes_max_ = payload_.size() + bytes;
  if (mode_ == Mode::kList) layout_->tail_bytes_max = bytes;
}

void Fields::Descriptors(std::uint32_t count) {
  if (mode_ == Mode::kList) layout_->fds = count;
}

void Fields::Range(const char* name, std::uint64_t value, std::uint64_t minimum,
                   std::uint64_t maximum) {
  if (mode_ != Mode::kRead || (value >= minimum && value <= maximum)) return;
  Reject(name, "is " + std::to_string(value) + ", allowed: " + LimitsText(minimum, maximum));
}

void Fields::Multiple(const char* name, std::uint64_t value, std::uint64_t step) {
  if (mode_ != Mode::kRead || value % step == 0) return;
  Reject(name, "is " + std::to_string(value) + ", allowed: multiples of " + std::to_string(step));
}

void Fields::Require(bool holds, const char* otherwise) {
  if (mode_ == Mode::kRead && !holds) Reject(otherwise);
}

void Fields::Limit(const char* name, std::uint64_t value, std::uint64_t maximum) {
  if (value <= maximum) return;
  Reject(name, "is " + std::to_string(value) + ", allowed: " + LimitsText(0, maximum));
}

Status Fields::End() {
  if (!unread_.empty()) Reject("it has " + std::to_string(unread_.size()) + " bytes too many");
  return status_;
}

void Fields::Piece(const char* name, std::span<std::byte> bytes, std::size_t element_bytes) {
  if (mode_ == Mode::kWrite) Write(bytes);
  if (mode_ == Mode::kRead) Read(bytes);
  if (mode_ == Mode::kList) List(name, bytes.size(), element_bytes);
}

void Fields::List(const char* name, std::size_t bytes, std::size_t element_bytes) {
  layout_->fields.push_back({name, layout_->bytes, bytes, element_bytes, ""});
  layout_->bytes += static_cast<std::uint32_t>(bytes);
}

void Fields::Bound(const char* name, std::uint64_t value, std::uint64_t minimum,
                   std::uint64_t maximum) {
  if (mode_ != Mode::kList) return Range(name, value, minimum, maximum);
  Field& field = layout_->fields.back();
  std::string limits = ListedNumber(minimum);
  if (maximum >= kAny >> (64 - 8 * field.element_bytes))
    limits = "at least " + limits;
  else if (maximum > minimum)
    limits += " to " + ListedNumber(maximum);
  if (field.limits.empty())
    field.limits = limits;
  else if (!field.limits.ends_with(limits))
    field.limits += ", then " + limits;
}

void Fields::Or(std::uint64_t value) {
  if (mode_ == Mode::kList) layout_->fields.back().limits += " or " + std::to_string(value);
}

void Fields::Write(std::span<const std::byte> bytes) {
  if (!ok()) return;
  payload_.insert(payload_.end(), bytes.begin(), bytes.end());
  if (payload_.size() <= payload_bytes_max_) return;
  Reject("it has at least " + std::to_string(payload_.size()) +
         " bytes, allowed: " + std::to_string(payload_bytes_max_));
}

void Fields::Read(std::span<std::byte> bytes) {
  if (!ok()) return;
  if (bytes.size() > unread_.size()) return Reject("it is too short");
  if (!bytes.empty()) std::memcpy(bytes.data(), unread_.data(), bytes.size());
  unread_ = unread_.subspan(bytes.size());
}

void Fields::Reject(const char* name, const std::string& reason) {
  std::string where;
  for (const Step& step : path_) {
    where += step.name;
    if (step.index != kNoIndex) where += "[" + std::to_string(step.index) + "]";
    where += ".";
  }
  Reject(where + name + " " + reason);
}

void Fields::Reject(const std::string& reason) {
  if (!ok()) return;
  const bool writes = mode_ == Mode::kWrite;
  status_ = Status(writes ? StatusCode::kLimitExceeded : StatusCode::kProtocolViolation,
                   std::string(message_) + " rejected: " + reason);
}

}  // namespace gpushared::ipc
