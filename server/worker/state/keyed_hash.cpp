// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/keyed_hash.h"

#include <sys/random.h>

#include <bit>
#include <cstring>

#include "gpushared/check.h"

namespace gpushared::server {

namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

struct State {
  std::uint64_t a, b, c, d;

  void Round() {
    a += b;
    c += d;
    b = std::rotl(b, 13) ^ a;
    d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32) + d;
    c += b;
    d = std::rotl(d, 21) ^ a;
    b = std::rotl(b, 17) ^ c;
    c = std::rotl(c, 32);
  }
  void Take(std::uint64_t word) {
    d ^= word;
    Round();
    Round();
    a ^= word;
  }
};

}  // namespace

std::uint64_t KeyedHash(std::span<const std::byte> bytes, const HashSeed& seed) {
  State state{seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
              seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u};
  const std::uint64_t size = bytes.size();
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof word; bytes = bytes.subspan(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    state.Take(word);
  }
  word = size << 56;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word |= std::to_integer<std::uint64_t>(bytes[i]) << 8 * i;
  }
  state.Take(word);
  state.c ^= 0xff;
  for (int i = 0; i < 4; ++i) state.Round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

HashSeed MakeHashSeed() {
  HashSeed seed{};
  // A request this small is answered completely or not at all.
  const ssize_t got = ::getrandom(seed.data(), sizeof seed, 0);
  Check(got == static_cast<ssize_t>(sizeof seed), "the system has random numbers");
  return seed;
}

}  // namespace gpushared::server
