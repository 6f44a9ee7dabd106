// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpushared::compile {
namespace {

constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::Add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t at = bytes_ % pending_.size();
    const std::size_t count = std::min(bytes.size(), pending_.size() - at);
    std::memcpy(pending_.data() + at, bytes.data(), count);
    bytes_ += count;
    bytes = bytes.subspan(count);
    if (bytes_ % pending_.size() == 0) Block(pending_.data());
  }
}

void Sha256::AddField(std::string_view text) {
  const std::uint64_t bytes = text.size();
  Add(std::as_bytes(std::span(&bytes, 1)));
  Add(std::as_bytes(std::span(text)));
}

Digest Sha256::Finish() {
  const std::uint64_t bits = bytes_ * 8;
  const std::byte one{0x80};
  Add(std::span(&one, 1));
  const std::byte zero{0};
  while (bytes_ % pending_.size() != 56) Add(std::span(&zero, 1));
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < 8; ++i) length.at(i) = static_cast<std::byte>(bits >> (56 - 8 * i));
  Add(length);
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest.at(i) = static_cast<std::byte>(state_.at(i / 4) >> (24 - 8 * (i % 4)));
  }
  return digest;
}

void Sha256::Block(const std::byte* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t i = 0; i < 64; ++i) {
    if (i < 16) {
      w[i] = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        w[i] = w[i] << 8 | std::to_integer<std::uint32_t>(block[4 * i + k]);
      }
      continue;
    }
    const std::uint32_t x = w[i - 15];
    const std::uint32_t y = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) + w[i - 7] +
           (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

std::string Hexadecimal(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

}  // namespace gpushared::compile
