// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SERVER_DEVICE_CPU_DEVICE_CASE_H_
#define GPUSHARED_TESTS_SERVER_DEVICE_CPU_DEVICE_CASE_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "server/device/cpu/cpu_device.h"
#include "tests/support/load_module.h"

namespace gpushared::device {

// Fixture with a cpu device, and one client with a module.
class CpuDeviceCase {
 protected:
  // Fails the test when any part of the setup is rejected.
  void Start(const CpuDeviceOptions& options, std::uint64_t quota_bytes, std::string_view text) {
    auto created = CreateCpuDevice(options, [this] {
      const std::lock_guard lock(mutex_);
      ++wakes_;
      woken_.notify_all();
    });
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    device_ = std::move(*created);
    space_ = std::move(*device_->CreateSpace({.quota_bytes = quota_bytes}));
    auto loaded = testing::LoadModule(*space_, text);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    module_ = *loaded;
  }

  LaunchWork Work(std::uint32_t kernel) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = space_.get();
    work.stream = 1;
    work.module = module_.get();
    work.kernel = kernel;
    return work;
  }

  // Waits for the oldest completion that no call has returned yet.
  Completion Await() {
    while (ended_.empty()) {
      std::array<Completion, 8> out;  // A call that does not fill the array arms the wake-up.
      const std::size_t count = device_->TakeCompletions(out);
      for (std::size_t i = 0; i < count; ++i) ended_.push_back(std::move(out[i]));
      if (count != 0) break;
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return wakes_ > 0; });
      --wakes_;
    }
    Completion first = std::move(ended_.front());
    ended_.pop_front();
    return first;
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  int wakes_ = 0;  // Protected by mutex_.

  std::unique_ptr<Device> device_;
  std::unique_ptr<Space> space_;
  std::shared_ptr<const Module> module_;
  WorkId last_id_ = 0;

 private:
  std::deque<Completion> ended_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_TESTS_SERVER_DEVICE_CPU_DEVICE_CASE_H_
