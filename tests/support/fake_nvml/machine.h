// SPDX-License-Identifier: Apache-2.0
// What the fake NVML says, as a value: read from JSON, changed by calls, and written again.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_NVML_MACHINE_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_NVML_MACHINE_H_

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/device/inventory/nvml.h"
#include "tests/support/fake_nvml/boards.h"

namespace gpushared::testing::fake_nvml {

struct FakeGpu;
struct FakeInstance;
struct FakeCompute;

// What a device handle points to: a GPU, or one of its compute instances.
struct Target {
  FakeGpu* gpu = nullptr;
  FakeInstance* instance = nullptr;  // Null: the GPU itself.
  FakeCompute* compute = nullptr;
};

struct FakeCompute {
  Target target;
  unsigned id = 0;
  unsigned slices = 0, start = 0;  // Multiprocessor slices.
  std::vector<unsigned> processes;
};

struct FakeInstance {
  FakeGpu* gpu = nullptr;
  const Profile* profile = nullptr;
  unsigned start = 0;
  unsigned generation = 0;
  std::list<FakeCompute> compute;

  unsigned id() const;
  // Whether another of so many slices can be there.
  bool HasRoom(unsigned compute_start, unsigned slices) const;
  FakeCompute& AddCompute(unsigned compute_start, unsigned slices);
};

struct FakeGpu {
  const Board* board = nullptr;
  unsigned index = 0;
  bool mig = false, mig_pending = false, lost = false, reset_required = false;
  int compute_mode = 0;
  unsigned generation = 0;  // The instance that was made last has it.
  std::vector<unsigned> processes;
  Target self;
  std::map<unsigned, FakeInstance> instances;  // By their first slice.

  // Whether such an instance can be made there: nothing, or why not.
  std::string WhyNot(const Profile& profile, unsigned start) const;
  FakeInstance& Add(const Profile& profile, unsigned start, unsigned instance_generation);
};

struct FailRule {
  std::string call;  // "*": any.
  unsigned at = 0;   // Of calls with that name; 0: each.
  bool and_later = false;
  bool kill = false;  // The process, as by SIGKILL.
  device::nvml::Code code = device::nvml::Code::kUnknown;
};

struct Machine {
  std::string driver = "580.65.06";
  int cuda = 13000;
  bool privileged = true;
  std::vector<std::unique_ptr<FakeGpu>> gpus;
  std::vector<FailRule> fails;
};

std::string GetUuid(const Target& target);
// Empty, or what is wrong with the text.
std::string ReadMachine(const std::string& text, Machine& machine);
std::string WriteMachine(const Machine& machine);

}  // namespace gpushared::testing::fake_nvml

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_NVML_MACHINE_H_
