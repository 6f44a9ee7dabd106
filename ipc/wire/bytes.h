// SPDX-License-Identifier: Apache-2.0
// Text in fields of a fixed size, and text that is safe to print.

#ifndef GPUSHARED_IPC_WIRE_BYTES_H_
#define GPUSHARED_IPC_WIRE_BYTES_H_

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace gpushared::ipc {

// The longest prefix of at most `bytes_max` bytes that does not end inside a UTF-8 sequence.
std::string_view CutText(std::string_view text, std::size_t bytes_max);

// Fixed-size text fields hold at most N - 1 bytes, then zeros up to the end.
template <std::size_t N>
void PutFixedText(char (&field)[N], std::string_view text) {
  text = CutText(text, N - 1);
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), text.size());
}

// False when the field has no terminator or a non-zero byte after it.
bool GetFixedText(std::span<const char> field, std::string& text);

// Valid UTF-8 without control characters, and without those that are not seen and turn or join
// others: safe to print in logs and terminals, where it looks like no other text.
bool IsPrintableText(std::string_view text);
// The same text with a '?' for each character that is not so.
std::string PrintableText(std::string_view text);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_BYTES_H_
