// SPDX-License-Identifier: Apache-2.0
// Reading and writing bytes whose length a peer chose.

#ifndef GPUSHARED_IPC_WIRE_BYTES_H_
#define GPUSHARED_IPC_WIRE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gpushared::ipc {

// Appends to a growing buffer. Numbers in host order: both ends run on one machine.
//
// Thread-compatible.
class ByteWriter {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    // Not insert(): gcc 12 sees an overflow in its inlined copy at -O3 that is not there.
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  // A u32 length, then the bytes; text beyond `bytes_max` is cut off.
  void PutText(std::string_view text, std::size_t bytes_max);
  // The bytes alone.
  void PutRaw(std::string_view text);

  std::vector<std::byte> Take() && { return std::move(bytes_); }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads front to back and never past the end. After the first failed read every further one
// fails too, so a decoder may check once, at its end.
//
// Thread-compatible. The bytes outlive the reader.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  bool Get(T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    if (failed_ || bytes_.size() < sizeof value) return Fail();
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return true;
  }
  // What PutText wrote; refused when longer than `bytes_max`, before anything is allocated.
  bool GetText(std::string& text, std::size_t bytes_max);
  // The next `bytes` bytes.
  bool GetRaw(std::string& text, std::size_t bytes);

  bool failed() const { return failed_; }
  std::size_t left() const { return bytes_.size(); }
  // Everything was read and nothing is left over.
  bool AtCleanEnd() const { return !failed_ && bytes_.empty(); }

 private:
  bool Fail() {
    failed_ = true;
    return false;
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

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
