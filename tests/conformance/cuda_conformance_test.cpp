// SPDX-License-Identifier: Apache-2.0
// The rules on a real driver. Where there is none every case is skipped, which is not passed.

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

// The exit status after a rule that left the context dead. No call of this process succeeds after
// it, so the remaining rules need another process: tests/gpu/parts/conformance.sh starts one.
constexpr int kContextIsDead = 3;

// Keeps the context from being made and destroyed for each rule, which takes longer than most rules
// do: a device finds the one that exists. After a rule that failed there is a new one.
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
  // Where this fails, the rules' devices say why.
  void Retain() {
    device::cuda::PrepareEnvironment();
    const auto driver = device::cuda::Driver::Load();
    if (!driver.ok()) return;
    driver_ = *driver;
    // The flags that a device uses.
    const unsigned flags =
        device::cuda::kContextBlockingSync | device::cuda::kContextKeepLocalMemory;
    Status status = driver_->Try(driver_->DeviceGet, &number_, 0);
    if (status.ok()) status = driver_->Try(driver_->DevicePrimaryCtxSetFlags, number_, flags);
    if (status.ok()) status = driver_->Try(driver_->DevicePrimaryCtxRetain, &context_, number_);
    is_kept_ = status.ok();
  }
  // A device's context is the primary one, so a sticky error of the rule's is found here, too.
  void EndWithDeadContext(const ::testing::TestInfo& test) {
    if (!is_kept_ || driver_->CtxSetCurrent(context_) != device::cuda::Code::kSuccess) return;
    const device::cuda::Code code = driver_->CtxSynchronize();
    if (!device::cuda::EndsContext(code)) return;
    // The framework's own line comes after the listeners', which is too late.
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

// The framework owns it.
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
      // The driver compiles what the passes made: it is our own text.
      Real(ClaimedCudaRow("cuda_claimed")),
      Real(ClaimedCudaRow("cuda_fenced_claimed", device::Isolation::kFence)),
      Real(ClaimedCudaRow("cuda_contained_claimed", device::Isolation::kContain)));
}

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance, Rows(),
                         [](const auto& any) { return any.param.name; });
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceSwaps, Rows(), [](const auto& any) { return any.param.name; });

}  // namespace
}  // namespace gpushared::testing
