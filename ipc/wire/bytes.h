// SPDX-License-Identifier: Apache-2.0
// Text in fixed-size fields, and printable text.

#ifndef GPUSHARED_IPC_WIRE_BYTES_H_
#define GPUSHARED_IPC_WIRE_BYTES_H_

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace gpushared::ipc {

// Returns the longest prefix of at most `bytes_max` bytes that does not end inside a UTF-8
// sequence.
std::string_view CutText(std::string_view text, std::size_t bytes_max);

// Writes text to a fixed-size field: at most N - 1 bytes, then zeros to the end.
template <std::size_t N>
void PutFixedText(char (&field)[N], std::string_view text) {
  text = CutText(text, N - 1);
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), text.size());
}

// Reads text from a fixed-size field. Returns false if the field has no terminator, or a non-zero
// byte after the terminator.
bool GetFixedText(std::span<const char> field, std::string& text);

// Returns whether `text` is valid UTF-8 without control characters and without invisible characters
// that reorder or join others. Such text is safe to print in logs and terminals and cannot imitate
// other text.
bool IsPrintableText(std::string_view text);
// Returns the text with a '?' in place of each character that is not printable.
std::string PrintableText(std::string_view text);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_BYTES_H_
