// SPDX-License-Identifier: Apache-2.0
// The machine of the fake NVML as a value: read from JSON, changed by calls, and written back.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_NVML_MACHINE_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_NVML_MACHINE_H_

#include <cstddef>
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

// The target of a device handle: a GPU, or one of its compute instances.
struct Target {
  FakeGpu* gpu = nullptr;
  FakeInstance* instance = nullptr;  // Null: the GPU itself.
  FakeCompute* compute = nullptr;
};

struct FakeCompute {
  Target target;
  unsigned id = 0;
  unsigned slices = 0, start = 0;  // Number of multiprocessor slices, and the first one.
  std::vector<unsigned> processes;
};

struct FakeInstance {
  FakeGpu* gpu = nullptr;
  const Profile* profile = nullptr;
  unsigned start = 0;
  unsigned generation = 0;
  std::list<FakeCompute> compute;

  unsigned id() const;
  // Returns whether another compute instance of this size fits there.
  bool HasRoom(unsigned compute_start, unsigned slices) const;
  FakeCompute& AddCompute(unsigned compute_start, unsigned slices);
};

// What the GPU's sensors show. -1: the board does not have this sensor.
struct Sensors {
  long long energy_mj = -1, utilization = -1, power_mw = -1, temperature = -1, sm_clock = -1;
  long long memory_clock = -1, memory_used = -1, ecc_corrected = -1, ecc_uncorrected = -1;
  std::vector<unsigned> xids;  // All since the machine began.
};

struct FakeGpu {
  const Board* board = nullptr;
  Sensors sensors;
  std::size_t xids_told = 0;
  unsigned index = 0;
  bool mig = false, mig_pending = false, lost = false, reset_required = false;
  int compute_mode = 0;
  unsigned generation = 0;  // Generation of the instance that was created last.
  std::vector<unsigned> processes;
  Target self;
  std::map<unsigned, FakeInstance> instances;  // By their first slice.

  // Returns why no such instance can be created there, or "".
  std::string WhyNot(const Profile& profile, unsigned start) const;
  FakeInstance& Add(const Profile& profile, unsigned start, unsigned instance_generation);
};

struct FailRule {
  std::string call;  // Name of the call; "*" for any.
  unsigned at = 0;   // Number of the call since nvmlInit; 0: every call.
  bool and_later = false;
  bool kill = false;  // Kills the process with SIGKILL.
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
// Reads only the sensors, so that handles stay valid.
void ReadSensors(const std::string& text, Machine& machine);
// Reads the text; returns the error in it, or "".
std::string ReadMachine(const std::string& text, Machine& machine);
std::string WriteMachine(const Machine& machine);

}  // namespace gpushared::testing::fake_nvml

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_NVML_MACHINE_H_
