// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_KEYED_HASH_H_
#define GPUSHARED_SERVER_WORKER_STATE_KEYED_HASH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gpushared::server {

using HashSeed = std::array<std::uint64_t, 2>;

// SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012). Without the seed it is infeasible to choose
// bytes that collide with others.
std::uint64_t KeyedHash(std::span<const std::byte> bytes, const HashSeed& seed);

// Returns a seed from the system's random number generator.
HashSeed MakeHashSeed();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_KEYED_HASH_H_
