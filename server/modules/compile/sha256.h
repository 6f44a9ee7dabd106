// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_COMPILE_SHA256_H_
#define GPUSHARED_SERVER_MODULES_COMPILE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gpushared::compile {

using Digest = std::array<std::byte, 32>;

// FIPS 180-4. A cryptographic hash is required, because clients choose the hashed bytes.
//
// Thread-compatible.
class Sha256 {
 public:
  void Add(std::span<const std::byte> bytes);
  // Adds the length and the text, so that adjacent fields cannot be confused.
  void AddField(std::string_view text);
  // May be called once, after all input was added.
  Digest Finish();

 private:
  void Block(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_ = {};
  std::uint64_t bytes_ = 0;
};

std::string Hexadecimal(const Digest& digest);

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_SHA256_H_
