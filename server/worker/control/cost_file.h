// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_COST_FILE_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_COST_FILE_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "scheduler/predictor.h"
#include "server/device/device.h"
#include "server/worker/state/keyed_hash.h"

namespace gpushared::server {

// A worker's knowledge of kernels, kept for the next one on the same device. The file is a text of
// one line per kernel and shape, with a checksum. It has the seed of their keys, so nobody else
// may read it. The file is input. A file that is too large, damaged, from another device or of
// other conditions is rejected as a whole, with the line and the reason.
//
// Thread-safe; the functions keep no state.

inline constexpr std::size_t kCostsKeptMax = scheduler::Predictor::kKeysMax;
inline constexpr std::size_t kCostFileBytesMax = std::size_t{512} * 1024;

struct KeptCosts {
  std::vector<scheduler::KnownCost> costs;  // In the order in which they were learnt.
  HashSeed seed{};
};

// What decides how long a kernel takes, besides the kernel: costs of other conditions say
// nothing. The device as it says it is, its parts that classes get, and a GPU's driver.
std::string CostConditions(const device::DeviceInfo& info);

// The name of that device's file. No two devices have the same.
std::string CostFileName(std::string_view device);

// Empty where there is no file.
Result<std::optional<KeptCosts>> ReadCosts(const std::string& path, std::string_view conditions);

// Replaces the file as a whole: whoever reads it sees the old costs or the new ones.
Status WriteCosts(const std::string& path, std::string_view conditions, const HashSeed& seed,
                  std::span<const scheduler::KnownCost> costs);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_COST_FILE_H_
