// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/device_loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gpushared::server {
namespace {

constexpr std::size_t kSuspectsNamedMax = 8;

}  // namespace

Status DescribeDeviceLoss(std::string_view device, std::string_view why,
                          std::span<const std::string> suspects) {
  const std::size_t named = std::min(suspects.size(), kSuspectsNamedMax);
  std::string who = suspects.empty()       ? "no client had work running"
                    : suspects.size() == 1 ? "caused by "
                                           : "caused by one of ";
  who += fmt::format("{}", fmt::join(suspects.first(named), ", "));
  if (suspects.size() > named) who += fmt::format(" and {} more", suspects.size() - named);
  return {StatusCode::kDeviceLost,
          fmt::format("device {} lost with all memory on it: {}; {}", device, why, who)};
}

}  // namespace gpushared::server
