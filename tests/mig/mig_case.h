// SPDX-License-Identifier: Apache-2.0
// GPUs of the fake NVML, a state file, and a tenant that follows the test's instructions.

#ifndef GPUSHARED_TESTS_MIG_MIG_CASE_H_
#define GPUSHARED_TESTS_MIG_MIG_CASE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/tools/mig/apply.h"
#include "server/tools/mig/gpu.h"
#include "server/tools/mig/state_file.h"
#include "tests/support/fake_nvml/fake_nvml.h"
#include "tests/support/scratch_directory.h"

#include <nlohmann/json.hpp>

namespace gpushared::mig {

inline constexpr unsigned kWorkerPid = 77;

// A tenant whose processes have kWorkerPid, and end when it leaves.
class FakeTenant : public Tenant {
 public:
  Status Leave(const std::string& uuid) override {
    left.push_back(uuid);
    if (!rejection.ok()) return rejection;
    nlohmann::json machine = nlohmann::json::parse(fake_nvml_get());
    const auto without_worker = [](nlohmann::json& holder) {
      auto& processes = holder["processes"];
      std::erase(processes.get_ref<nlohmann::json::array_t&>(), nlohmann::json(kWorkerPid));
    };
    for (nlohmann::json& gpu : machine["gpus"]) {
      if (uuid.starts_with("GPU-")) without_worker(gpu);
      for (nlohmann::json& instance : gpu["instances"]) {
        for (nlohmann::json& compute : instance["compute"]) without_worker(compute);
      }
    }
    EXPECT_EQ(fake_nvml_set(machine.dump().c_str()), nullptr);
    return Status::Ok();
  }
  void ComeBack(const std::optional<std::vector<std::string>>& there) override {
    ++came_back;
    now = there;
  }

  Status rejection;
  std::vector<std::string> left;
  int came_back = 0;
  std::optional<std::vector<std::string>> now;  // The present devices, as last reported to it.
};

class MigCase : public ::testing::Test {
 protected:
  ~MigCase() override {
    nvml_.reset();
    fake_nvml_set(nullptr);
  }

  // Opens NVML again on this machine.
  void Machine(const std::string& json) {
    nvml_.reset();
    const char* const wrong = fake_nvml_set(json.c_str());
    ASSERT_EQ(wrong, nullptr) << wrong << json;
    auto loaded = device::nvml::Nvml::Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    nvml_ = std::move(*loaded);
  }
  // Replaces the failures of the present machine, and opens NVML again.
  void Failing(const nlohmann::json& rules) {
    nlohmann::json machine = nlohmann::json::parse(fake_nvml_get());
    machine["fail"] = rules;
    Machine(machine.dump());
  }
  GpuControl control() const { return GpuControl(*nvml_); }
  MigGpu Gpu(std::size_t index = 0) const {
    auto gpus = control().Read();
    EXPECT_TRUE(gpus.ok()) << gpus.status().message();
    return gpus->at(index);
  }
  static GpuLayout AsIs(const MigGpu& gpu) {
    return {.gpu = gpu.uuid, .is_enabled = gpu.is_enabled, .layout = gpu.layout()};
  }
  Status Apply(const std::vector<Change>& changes) {
    const auto state = StateFile::Open(path_);
    EXPECT_TRUE(state.ok()) << state.status().message();
    return Mover(control(), *state, tenant_, [](const std::string&) {}).Apply(changes);
  }
  Status Restore() {
    const auto state = StateFile::Open(path_);
    EXPECT_TRUE(state.ok()) << state.status().message();
    return Mover(control(), *state, tenant_, [](const std::string&) {}).Restore();
  }
  SavedState Saved() const {
    const auto state = StateFile::Open(path_);
    EXPECT_TRUE(state.ok()) << state.status().message();
    const auto saved = state->Load();
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    return *saved;
  }

  const testing::ScratchDirectory directory_;
  std::string path_ = directory_ / "state.json";
  std::unique_ptr<const device::nvml::Nvml> nvml_;
  FakeTenant tenant_;
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_TESTS_MIG_MIG_CASE_H_
