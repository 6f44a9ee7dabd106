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

// A node's handle is valid for as long as its graph exists.
struct FakeNode {
  std::uintptr_t graph = 0;
  std::uintptr_t after = 0;   // The predecessor or 0. Real nodes may have several.
  std::uintptr_t module = 0;  // 0 unless the node is a kernel.
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
  std::vector<Node> nodes;  // In execution order.
};

// Returns whether an instantiated graph has a kernel of the module.
bool HasKernelsOf(World& world, std::uintptr_t module);

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_GRAPHS_H_
