// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_SIMULATED_LOADER_H_
#define GPUSHARED_TESTS_GPU_SIMULATED_LOADER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/driver.h"
#include "server/device/cuda/idle_windows.h"
#include "tests/bench/report.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/virtual_time/virtual_time.h"

namespace gpushared::testing {

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}
inline void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// Kinds of images that a loader loads.
enum class Image : std::uint8_t {
  kKept,       // A text that the driver has compiled before.
  kFreshText,  // A text that the driver has not compiled before, a different one each time.
  kFreshCode,  // The code of such a text, made by a compiler outside the driver.
};

// Imitates another thread of the worker, which repeatedly loads a module and one of its kernels for
// a client, and unloads it. In a worker, that thread would wait for an idle window; here the device
// thread performs its actions, too.
class SimulatedLoader {
 public:
  // `windows`: null if the loader does not wait for idle windows.
  SimulatedLoader(device::cuda::IdleWindows* windows, std::string_view text, Image image,
                  std::uint64_t pause_ns)
      : idle_windows_(windows),
        text_(text),
        image_(image),
        pause_ns_(pause_ns),
        driver_(Must(device::cuda::Driver::Load())) {}

  // Performs the loader's actions at that time; returns when it will act next if no other event
  // occurs.
  std::uint64_t Act(std::uint64_t now) {
    if (now < next_at_) return next_at_;
    if (calls_ == 0 && !HasBegun(now)) return now + kPollNs;
    if (const std::uint64_t at = fake_cuda_lock_free_at(); at != 0) {
      return std::min(at, now + kPollNs);
    }
    if (calls_ < kCalls) {
      Call();
      return now + kPollNs;
    }
    window_.reset();
    took_.Add(static_cast<double>(now - asked_at_));
    has_asked_ = false;
    calls_ = 0;
    return next_at_ = now + pause_ns_;
  }
  // Stops delaying other clients' work.
  void Stop() { window_.reset(); }
  // Finishes the calls in progress once no work is running.
  void End() {
    for (;;) {
      if (const std::uint64_t at = fake_cuda_lock_free_at(); at != 0) {
        virtual_time_spend(at - virtual_time_now());
      }
      if (calls_ == 0 || calls_ == kCalls) return;
      Call();
    }
  }
  const Samples& took() const { return took_; }

 private:
  static constexpr int kCalls = 3;
  static constexpr std::uint64_t kPollNs = 1'000;

  bool HasBegun(std::uint64_t now) {
    if (!std::exchange(has_asked_, true)) {
      asked_at_ = now;
      using device::cuda::IdleWindow;
      if (idle_windows_ != nullptr) {
        window_.emplace(*idle_windows_, device::cuda::Urgency::kAwaited, IdleWindow::Wait::kLater);
      }
    }
    return !window_ || window_->HasBegun();
  }
  void Call() {
    fake_cuda_elsewhere(1);
    switch (calls_++) {
      case 0:
        MakeImage();
        Must(driver_->Try(
            driver_->ModuleLoadDataEx, &module_, static_cast<const void*>(loaded_.c_str()), 0U,
            static_cast<device::cuda::JitOption*>(nullptr), static_cast<void**>(nullptr)));
        break;
      case 1:
        Must(driver_->Try(driver_->ModuleGetFunction, &function_, module_, "busy"));
        break;
      default:
        Must(driver_->Try(driver_->ModuleUnload, module_));
    }
    fake_cuda_elsewhere(0);
  }

  void MakeImage() {
    loaded_ = image_ == Image::kFreshCode ? FAKE_CUDA_CODE + text_ : text_;
    if (image_ != Image::kKept) loaded_ += "// " + std::to_string(took_.count()) + "\n";
  }

  device::cuda::IdleWindows* const idle_windows_;
  const std::string text_;
  const Image image_;
  const std::uint64_t pause_ns_;
  const std::shared_ptr<const device::cuda::Driver> driver_;
  std::optional<device::cuda::IdleWindow> window_;
  std::string loaded_;
  device::cuda::Module module_ = nullptr;
  device::cuda::Function function_ = nullptr;
  bool has_asked_ = false;
  int calls_ = 0;  // Calls made in this round.
  std::uint64_t next_at_ = 0, asked_at_ = 0;
  Samples took_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_SIMULATED_LOADER_H_
