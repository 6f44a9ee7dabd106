// SPDX-License-Identifier: Apache-2.0
// The beginning of every call of the fake NVML: the lock, the injected failures, and the check that
// its handle names an existing object.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FRAME_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FRAME_H_

#include <signal.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tests/support/fake_nvml/machine.h"

namespace gpushared::device::nvml {

extern "C" {
#define FAKE_NVML_DECLARE(name, suffix, required, signature) Code nvml##name##suffix signature;
GPUSHARED_NVML_SYMBOLS(FAKE_NVML_DECLARE)
#undef FAKE_NVML_DECLARE
}

// The state of the library. A single object, because a driver has one state for all of its users.
struct Fake {
  std::mutex mutex;
  std::optional<std::string> given;
  std::string wrong, told;
  testing::fake_nvml::Machine machine;
  std::map<std::string, unsigned> calls;  // Since nvmlInit; "*" counts all.
  int open = 0;

  // Persists a change, so that the next nvmlInit of any process reads it.
  void Keep();
};
extern Fake g_fake;

template <typename Body>
Code Called(const char* name, Body&& body) {
  const std::lock_guard lock(g_fake.mutex);
  const unsigned number = ++g_fake.calls[name];
  const unsigned number_of_all = ++g_fake.calls["*"];
  for (const testing::fake_nvml::FailRule& rule : g_fake.machine.fails) {
    if (rule.call != name && rule.call != "*") continue;
    const unsigned mine = rule.call == "*" ? number_of_all : number;
    if (rule.at != 0 && (rule.and_later ? mine < rule.at : mine != rule.at)) continue;
    if (rule.kill) ::raise(SIGKILL);
    return rule.code;
  }
  if (g_fake.open == 0) return Code::kUninitialized;
  return body();
}

// Returns null for handles of destroyed objects.
testing::fake_nvml::Target* FindTarget(DeviceHandle handle);
testing::fake_nvml::FakeInstance* FindInstance(GpuInstanceHandle handle);
testing::fake_nvml::FakeCompute* FindCompute(ComputeInstanceHandle handle);

template <typename Body>
Code OfDevice(const char* name, DeviceHandle handle, Body&& body) {
  return Called(name, [&] {
    testing::fake_nvml::Target* const target = FindTarget(handle);
    if (target == nullptr) return Code::kInvalidArgument;
    return target->gpu->lost ? Code::kGpuIsLost : body(*target);
  });
}

// Runs `body` on a whole GPU; instances are rejected.
template <typename Body>
Code OfGpu(const char* name, DeviceHandle handle, Body&& body) {
  return OfDevice(name, handle, [&](const testing::fake_nvml::Target& target) {
    return target.instance != nullptr ? Code::kInvalidArgument : body(*target.gpu);
  });
}

}  // namespace gpushared::device::nvml

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FRAME_H_
