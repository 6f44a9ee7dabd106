// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/machine_noise.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace gpushared::testing {
namespace {

using std::chrono::nanoseconds;

nanoseconds WaitedForCore(pid_t process) {
  nanoseconds waited{};
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "schedstat");
    std::int64_t ran_ns = 0, waited_ns = 0;
    if (file >> ran_ns >> waited_ns) waited += nanoseconds(waited_ns);
  }
  return waited;
}

nanoseconds StolenFromMachine() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  std::int64_t user = 0, nice = 0, system = 0, idle = 0, io = 0, irq = 0, soft_irq = 0, steal = 0;
  if (!(file >> cpu >> user >> nice >> system >> idle >> io >> irq >> soft_irq >> steal)) return {};
  return nanoseconds(steal * (1'000'000'000 / ::sysconf(_SC_CLK_TCK)));
}

}  // namespace

nanoseconds KeptFromCores(pid_t process) { return WaitedForCore(process) + StolenFromMachine(); }

}  // namespace gpushared::testing
