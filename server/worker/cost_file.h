// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_COST_FILE_H_
#define GPUSHARED_SERVER_WORKER_COST_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "scheduler/predictor.h"

namespace gpushared::server {

// What a worker has learnt of kernels, kept for the next one on the same device: a text of one
// line per kernel and shape, with a checksum. The file is input: one that is too large, from
// another device, or damaged is refused as a whole, with the line and the reason.
//
// Thread-safe; the functions keep no state.

inline constexpr std::size_t kCostsKeptMax = scheduler::Predictor::kKeysMax;
inline constexpr std::size_t kCostFileBytesMax = 512 * 1024;

// In the order in which they were learnt. No file is no costs. `device` is what the device says
// it is: costs of another model say nothing.
Result<std::vector<scheduler::KnownCost>> ReadCosts(const std::string& path,
                                                    std::string_view device);

// Replaces the file as a whole: whoever reads it sees the old costs or the new ones.
Status WriteCosts(const std::string& path, std::string_view device,
                  std::span<const scheduler::KnownCost> costs);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_COST_FILE_H_
