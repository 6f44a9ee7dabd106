// SPDX-License-Identifier: Apache-2.0
// Graphs of the fake driver.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_GRAPHS_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/support/fake_cuda/world.h"

namespace gpushared::testing::fake_cuda {

// Its handles name it for as long as its graph is there.
struct FakeNode {
  std::uintptr_t graph = 0;
  std::uintptr_t after = 0;   // The node ahead; 0: none. Others have more; nobody here does.
  std::uintptr_t module = 0;  // 0 where it is no kernel.
  std::function<Work()> make;
};

struct FakeGraph {
  std::uintptr_t context = 0;
  std::vector<std::uintptr_t> nodes;  // In the order in which they were added.
};

struct FakeExec {
  struct Node {
    std::uintptr_t node = 0;
    std::uintptr_t module = 0;
    std::function<Work()> make;
  };
  std::uintptr_t context = 0;
  std::uintptr_t graph = 0;
  std::vector<Node> nodes;  // In the order in which they run.
};

// Whether a graph that is instantiated has a kernel of the module.
bool HasKernelsOf(World& world, std::uintptr_t module);

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_GRAPHS_H_
