// SPDX-License-Identifier: Apache-2.0
#include "server/platform/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::server {
namespace {

using ::testing::HasSubstr;

std::uint32_t FirstProcessor() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::uint32_t first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  return first;
}

// A machine that is described by files as in sysfs.
class Numa : public ::testing::Test {
 protected:
  Numa() { std::filesystem::create_directories(root_); }
  ~Numa() override { std::filesystem::remove_all(root_); }
  Numa(const Numa&) = delete;
  Numa& operator=(const Numa&) = delete;

  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  NumaPlace Find(const std::string& bus = "0000:17:00.0") const {
    return FindNumaPlace(bus, root_);
  }
  // Makes a machine with two nodes, with the GPU attached to the second one.
  void TwoNodes() const {
    Write("/devices/system/node/online", "0-1");
    Write("/devices/system/node/node0/cpulist", "500");
    Write("/devices/system/node/node1/cpulist", std::to_string(FirstProcessor()) + ",600-603");
    Write("/bus/pci/devices/0000:17:00.0/numa_node", "1");
  }

  const std::string root_ = ::testing::TempDir() + "numa_" + std::to_string(::getpid());
};

TEST_F(Numa, TakesGpusNodeFromItsBus) {
  TwoNodes();
  const NumaPlace place = Find();
  EXPECT_EQ(place.node, 1U);
  EXPECT_EQ(place.processors, std::vector<std::uint32_t>{FirstProcessor()})
      << "those that this process may use";
  EXPECT_EQ(place.ToString(), "node 1, processors " + std::to_string(FirstProcessor()));
  EXPECT_EQ(Find("00000000:17:00.0").node, 1U) << "as NVML writes it";
}

TEST_F(Numa, ChoosesNothingOnSingleNode) {
  TwoNodes();
  Write("/devices/system/node/online", "0");
  EXPECT_FALSE(Find().node);
  EXPECT_THAT(Find().ToString(), HasSubstr("one memory node: nothing to choose"));
  EXPECT_EQ(Find("").ToString(), "") << "what lies on no bus is near nothing";
}

TEST_F(Numa, DoesNotGuessMissingFacts) {
  TwoNodes();
  for (const char* const said : {"-1", "7", "one", "", "99999999999"}) {
    Write("/bus/pci/devices/0000:17:00.0/numa_node", said);
    EXPECT_FALSE(Find().node) << said;
    EXPECT_THAT(Find().ToString(), HasSubstr("does not report at which of its 2 memory nodes"));
  }
  EXPECT_FALSE(Find("0000:18:00.0").node) << "there is no such device";
  EXPECT_FALSE(Find("../../0:17:0").node);
  Write("/devices/system/node/online", "0-99999999");
  EXPECT_FALSE(Find().node);
}

TEST_F(Numa, SkipsNodeWithoutAllowedProcessors) {
  TwoNodes();
  Write("/devices/system/node/node1/cpulist", "600-603");
  EXPECT_FALSE(Find().node);
  EXPECT_THAT(Find().ToString(), HasSubstr("may use no processor of memory node 1"));
}

TEST_F(Numa, BoundThreadRunsAndAllocatesOnNode) {
  const NumaPlace place{.node = 0, .processors = {FirstProcessor()}, .why_none = {}};
  std::thread([&] {
    const Status kept = KeepThisThreadAt(place);
    ASSERT_TRUE(kept.ok()) << kept.ToString();
    cpu_set_t now;
    ASSERT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_EQ(CPU_COUNT(&now), 1);
    EXPECT_TRUE(CPU_ISSET(FirstProcessor(), &now));
    int mode = -1;
    unsigned long nodes[17] = {};
    ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, nodes, 1024, nullptr, 0), 0);
    EXPECT_EQ(mode, MPOL_PREFERRED);
    EXPECT_EQ(nodes[0], 1U);
  }).join();
  cpu_set_t here;
  ASSERT_EQ(::sched_getaffinity(0, sizeof here, &here), 0);
  std::thread([&] {
    EXPECT_TRUE(KeepThisThreadAt(NumaPlace()).ok());
    cpu_set_t now;
    ASSERT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_TRUE(CPU_EQUAL(&now, &here)) << "without a node it stays where it is";
  }).join();
}

}  // namespace
}  // namespace gpushared::server
