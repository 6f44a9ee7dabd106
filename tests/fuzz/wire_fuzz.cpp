// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/wire_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  const auto* target = gpushared::testing::GetTarget(input);
  if (target != nullptr) (void)target->accepts(input.subspan(1));
  return 0;
}
