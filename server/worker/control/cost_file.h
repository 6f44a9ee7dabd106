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

// Persistence of a worker's kernel costs for the next worker of the same device. The file is a text
// of one line per kernel and shape, with a checksum. Only the server's user may read it, because it
// contains the seed of the keys. The file is untrusted input: if it is too large or damaged, or was
// written for another device or under other conditions, it is rejected as a whole, with the reason.
//
// Thread-safe; the functions keep no state.

inline constexpr std::size_t kCostsKeptMax = scheduler::Predictor::kKeysMax;
inline constexpr std::size_t kCostFileBytesMax = std::size_t{512} * 1024;

struct KeptCosts {
  std::vector<scheduler::KnownCost> costs;  // In the order in which they were learnt.
  HashSeed seed{};
};

// Returns the conditions under which costs are valid: the device's name and multiprocessors, how
// many of the multiprocessors each class gets, and a GPU's driver version. Kernel times depend on
// all of these.
std::string CostConditions(const device::DeviceInfo& info);

// Returns the file name for this device, unique among devices.
std::string CostFileName(std::string_view device);

// Returns an empty optional if the file does not exist or is empty.
Result<std::optional<KeptCosts>> ReadCosts(const std::string& path, std::string_view conditions);

// Replaces the file atomically: a reader sees either the old costs or the new ones.
Status WriteCosts(const std::string& path, std::string_view conditions, const HashSeed& seed,
                  std::span<const scheduler::KnownCost> costs);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_COST_FILE_H_
