// SPDX-License-Identifier: Apache-2.0
// Tests of kernels compiled by nvcc, in both compilations of the operations.

#ifndef GPUSHARED_TESTS_EXECUTOR_KERNEL_FILE_H_
#define GPUSHARED_TESTS_EXECUTOR_KERNEL_FILE_H_

#include <string>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {

class KernelFile : public PerFlavour {
 protected:
  explicit KernelFile(const char* name)
      : launcher(std::uint64_t{16} << 20, GetParam()), name_(name) {}

  void SetUp() override {
    PerFlavour::SetUp();
    if (!IsSkipped()) launcher.LoadFile(std::string(GPUSHARED_TEST_PTX_DIR) + "/" + name_ + ".ptx");
  }

  // Runs a kernel that must succeed.
  template <typename... Parameters>
  void Run(std::string_view kernel, device::Dim3 grid, device::Dim3 block,
           Parameters... parameters) {
    const executor::RunOutcome outcome = launcher.Run(kernel, grid, block, parameters...);
    ASSERT_EQ(outcome.end, executor::RunOutcome::End::kFinished)
        << (outcome.fault ? outcome.fault->message : "");
    ASSERT_EQ(outcome.blocks_done, grid.Count());
  }
  // Runs a kernel that must fault, and returns the fault.
  template <typename... Parameters>
  executor::Fault Faulting(std::string_view kernel, device::Dim3 grid, device::Dim3 block,
                           Parameters... parameters) {
    const executor::RunOutcome outcome = launcher.Run(kernel, grid, block, parameters...);
    EXPECT_EQ(outcome.end, executor::RunOutcome::End::kFaulted);
    return outcome.fault.value_or(executor::Fault{});
  }

  Launcher launcher;

 private:
  const char* name_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_KERNEL_FILE_H_
