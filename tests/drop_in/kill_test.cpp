// SPDX-License-Identifier: Apache-2.0
// Programs with the drop-in that are killed at random moments must not affect other clients.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared::testing {
namespace {

class DropInKills : public DropInServerCase {
 protected:
  static int Kills() {
    const char* const wanted = std::getenv("GPUSHARED_CRASH_KILLS");
    return wanted == nullptr ? 200 : std::atoi(wanted);
  }
};

TEST_F(DropInKills, AffectOnlyTheKilledProgram) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  const std::vector<pid_t> workers = server_.workers();
  // The first program runs longer than the others, so that the server creates its lasting resources
  // (threads, staging buffers, caches) before descriptors are counted.
  const std::vector<std::string> program = {GPUSHARED_BUSY_PROGRAM};
  std::size_t descriptors = 0;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> microseconds(0, 60'000);
  for (int kill = 0; kill <= Kills(); ++kill) {
    const pid_t pid = StartProgram(program, "");
    const int lives = kill == 0 ? 500'000 : microseconds(random);
    std::this_thread::sleep_for(std::chrono::microseconds(lives));
    ASSERT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
    ::kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the program ended before kill " << kill << ": " << status;
    ASSERT_EQ(Read(numbers), All(static_cast<std::uint32_t>(kill) + 1));
    ASSERT_EQ(server_.workers(), workers) << "a worker ended at kill " << kill;
    if (kill > 0) continue;
    ASSERT_TRUE(Eventually([&] { return Sessions() == 1; }));
    descriptors = OpenFileDescriptors(workers.at(0));
  }
  EXPECT_TRUE(Eventually([&] { return Sessions() == 1; })) << Sessions();
  EXPECT_TRUE(Eventually([&] { return OpenFileDescriptors(workers.at(0)) <= descriptors; }))
      << OpenFileDescriptors(workers.at(0)) << " descriptors, " << descriptors << " before";
}

}  // namespace
}  // namespace gpushared::testing
