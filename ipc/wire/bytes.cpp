// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/bytes.h"

namespace gpushared::ipc {
namespace {

// Bytes of the UTF-8 sequence that starts at `text[at]`, 0 when there is no valid one. Refuses
// overlong forms, surrogates and numbers beyond U+10FFFF.
std::size_t SequenceBytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const auto continues = [&](std::size_t i) {
    return at + i < text.size() && (byte(i) & 0xc0) == 0x80;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if ((first & 0xf0) == 0xe0) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) >= 0xa0) return 0;
    return 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    if (first == 0xf4 && byte(1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

std::string_view CutText(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t bytes = bytes_max;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

void ByteWriter::PutText(std::string_view text, std::size_t bytes_max) {
  text = CutText(text, bytes_max);
  Put(static_cast<std::uint32_t>(text.size()));
  PutRaw(text);
}

void ByteWriter::PutRaw(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  bytes_.insert(bytes_.end(), first, first + text.size());
}

bool ByteReader::GetText(std::string& text, std::size_t bytes_max) {
  std::uint32_t bytes = 0;
  if (!Get(bytes)) return false;
  if (bytes > bytes_max) return Fail();
  return GetRaw(text, bytes);
}

bool ByteReader::GetRaw(std::string& text, std::size_t bytes) {
  if (failed_ || bytes > bytes_.size()) return Fail();
  text.assign(reinterpret_cast<const char*>(bytes_.data()), bytes);
  bytes_ = bytes_.subspan(bytes);
  return true;
}

bool GetFixedText(std::span<const char> field, std::string& text) {
  std::size_t bytes = 0;
  while (bytes < field.size() && field[bytes] != '\0') ++bytes;
  if (bytes == field.size()) return false;
  for (std::size_t i = bytes; i < field.size(); ++i) {
    if (field[i] != '\0') return false;
  }
  text.assign(field.data(), bytes);
  return true;
}

bool IsPrintableText(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == 0x7f) return false;
    const std::size_t bytes = SequenceBytes(text, at);
    if (bytes == 0) return false;
    // U+0080 to U+009F are control characters too.
    if (bytes == 2 && byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0) return false;
    at += bytes;
  }
  return true;
}

}  // namespace gpushared::ipc
