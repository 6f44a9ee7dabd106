// SPDX-License-Identifier: Apache-2.0
// The device conformance suite on a real driver. Without one every case is skipped, which is not a
// pass.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "server/device/cuda/cuda_device.h"
#include "tests/conformance/cuda_row.h"
#include "tests/conformance/device_swaps.h"

namespace gpushared::testing {
namespace {

using device::cuda::CompletionKind;

// Exit status after a rule that left the context unusable. All further calls of this process fail,
// so the remaining rules need another process, which tests/gpu/parts/conformance.sh starts.
constexpr int kContextIsDead = 3;

// Keeps the primary context alive between rules, because its creation takes longer than most rules
// do: each device finds the existing one. After a failed rule the context is created again.
class KeptContext : public ::testing::EmptyTestEventListener {
 public:
  void OnTestProgramStart(const ::testing::UnitTest& /*program*/) override { Retain(); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    EndWithDeadContext(test);
    Release();
    Retain();
  }
  void OnTestProgramEnd(const ::testing::UnitTest& /*program*/) override { Release(); }

 private:
  // A failure is ignored here, because the rules' devices report it.
  void Retain() {
    device::cuda::PrepareEnvironment();
    const auto driver = device::cuda::Driver::Load();
    if (!driver.ok()) return;
    driver_ = *driver;
    // Uses the same flags as a device.
    const unsigned flags =
        device::cuda::kContextBlockingSync | device::cuda::kContextKeepLocalMemory;
    Status status = driver_->Try(driver_->DeviceGet, &number_, 0);
    if (status.ok()) status = driver_->Try(driver_->DevicePrimaryCtxSetFlags, number_, flags);
    if (status.ok()) status = driver_->Try(driver_->DevicePrimaryCtxRetain, &context_, number_);
    is_kept_ = status.ok();
  }
  // A device uses the primary context, so a sticky error of the rule is visible here, too.
  void EndWithDeadContext(const ::testing::TestInfo& test) {
    if (!is_kept_ || driver_->CtxSetCurrent(context_) != device::cuda::Code::kSuccess) return;
    const device::cuda::Code code = driver_->CtxSynchronize();
    if (!device::cuda::EndsContext(code)) return;
    // The result is printed here, because the process exits before the framework would print it.
    std::printf("the context is dead: %s\n[  FAILED  ] %s.%s (%lld ms)\n",
                driver_->Explain("cuCtxSynchronize", code).c_str(), test.test_suite_name(),
                test.name(), static_cast<long long>(test.result()->elapsed_time()));
    std::fflush(nullptr);
    std::_Exit(kContextIsDead);
  }
  void Release() {
    if (is_kept_) (void)driver_->DevicePrimaryCtxRelease(number_);
    is_kept_ = false;
  }

  std::shared_ptr<const device::cuda::Driver> driver_;
  device::cuda::DeviceNumber number_ = 0;
  device::cuda::Context context_ = nullptr;
  bool is_kept_ = false;
};

// The framework takes ownership.
[[maybe_unused]] const bool kIsContextKept = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new KeptContext);
  return true;
}();

ConformanceDevice Real(ConformanceDevice row) {
  row.why_skipped = []() -> std::string {
    device::cuda::PrepareEnvironment();
    const auto driver = device::cuda::Driver::Load();
    return driver.ok() ? "" : driver.status().message();
  };
  return row;
}

auto Rows() {
  return ::testing::Values(
      Real(CudaRow("cuda_events", CompletionKind::kEvents)),
      Real(CudaRow("cuda_writes", CompletionKind::kWrites)),
      Real(CudaRow("cuda_fenced", CompletionKind::kEvents, device::Isolation::kFence)),
      Real(CudaRow("cuda_contained", CompletionKind::kEvents, device::Isolation::kContain)),
      // The driver compiles the text that the passes produce.
      Real(ClaimedCudaRow("cuda_claimed")),
      Real(ClaimedCudaRow("cuda_fenced_claimed", device::Isolation::kFence)),
      Real(ClaimedCudaRow("cuda_contained_claimed", device::Isolation::kContain)));
}

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance, Rows(),
                         [](const auto& any) { return any.param.name; });
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceSwaps, Rows(), [](const auto& any) { return any.param.name; });

}  // namespace
}  // namespace gpushared::testing
