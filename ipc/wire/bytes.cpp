// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/bytes.h"

#include <algorithm>

namespace gpushared::ipc {
namespace {

// Returns the length of the UTF-8 sequence at `text[at]`; 0 if it is invalid. Rejects overlong
// forms, surrogates and code points beyond U+10FFFF.
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

namespace {

// Returns whether the character is invisible but changes how its neighbours are displayed
// (direction marks, embeddings, overrides, isolates, joiners) or where a line ends (separators).
bool IsUnseen(std::string_view sequence) {
  if (sequence.size() == 2) return sequence == "\xd8\x9c" || sequence == "\xc2\xad";
  if (sequence.size() != 3) return false;
  const auto is_in = [&](std::string_view first, std::string_view last) {
    return sequence >= first && sequence <= last;
  };
  return is_in("\xe2\x80\x8b", "\xe2\x80\x8f") ||  // U+200B to U+200F
         is_in("\xe2\x80\xa8", "\xe2\x80\xae") ||  // U+2028 to U+202E
         is_in("\xe2\x81\xa0", "\xe2\x81\xaf") ||  // U+2060 to U+206F
         sequence == "\xe1\xa0\x8e" || sequence == "\xef\xbb\xbf" ||
         is_in("\xef\xbf\xb9", "\xef\xbf\xbb");  // U+FFF9 to U+FFFB
}

}  // namespace

bool IsPrintableText(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == 0x7f) return false;
    const std::size_t bytes = SequenceBytes(text, at);
    if (bytes == 0) return false;
    // U+0080 to U+009F are control characters as well.
    if (bytes == 2 && byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0) return false;
    if (IsUnseen(text.substr(at, bytes))) return false;
    at += bytes;
  }
  return true;
}

std::string PrintableText(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const std::size_t bytes = std::max<std::size_t>(1, SequenceBytes(text, 0));
    const std::string_view sequence = text.substr(0, bytes);
    printable += IsPrintableText(sequence) ? sequence : std::string_view("?");
    text.remove_prefix(bytes);
  }
  return printable;
}

}  // namespace gpushared::ipc
