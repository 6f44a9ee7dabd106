// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_KEYED_HASH_H_
#define GPUSHARED_SERVER_WORKER_STATE_KEYED_HASH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gpushared::server {

using HashSeed = std::array<std::uint64_t, 2>;

// SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012): whoever does not know the seed cannot
// choose bytes that have the hash of others.
std::uint64_t KeyedHash(std::span<const std::byte> bytes, const HashSeed& seed);

// From the system's source of random numbers.
HashSeed MakeHashSeed();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_KEYED_HASH_H_
