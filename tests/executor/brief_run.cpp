// SPDX-License-Identifier: Apache-2.0
#include "tests/executor/brief_run.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace gpushared::testing {

using namespace device::executor;

RunOutcome RunBriefly(const Program& program, std::chrono::milliseconds patience) {
  alignas(4096) static std::array<std::byte, 8192> memory;
  static const std::atomic<std::uint64_t> mapped{4096};
  std::vector<std::byte> parameters(program.info().parameter_bytes);
  const auto base = reinterpret_cast<std::uint64_t>(memory.data());
  const std::uint32_t threads = std::min(64u, program.info().threads_per_block_max);
  if (parameters.size() >= 12) {
    std::memcpy(parameters.data(), &base, sizeof base);
    std::memcpy(parameters.data() + 8, &threads, sizeof threads);
  }
  Launch launch;
  launch.program = &program;
  launch.grid = {2, 1, 1};
  launch.block = {threads, 1, 1};
  launch.parameters = parameters;
  launch.memory = {.base = base,
                   .mapped_bytes = &mapped,
                   .variables_base = base + 4096,
                   .variables_bytes = 4096};
  launch.variables_at = base + 4096;
  launch.stall_limit = std::chrono::milliseconds(1);
  const std::atomic<bool> never{false};
  std::atomic<bool> kill{false};
  std::atomic<bool> is_over{false};
  std::thread killer([&] {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!is_over && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill = true;
  });
  RunOutcome outcome = BlockExecutor().Run(launch, 0, 2, never, kill);
  is_over = true;
  killer.join();
  return outcome;
}

}  // namespace gpushared::testing
