// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_nvml/machine.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

namespace gpushared::testing::fake_nvml {
namespace {

using device::nvml::Code;
using nlohmann::json;

std::string AddInstance(FakeGpu& gpu, const json& described) {
  const std::string wanted = described.at("profile");
  const unsigned start = described.at("start");
  const auto profile = std::ranges::find(gpu.board->profiles, wanted, &Profile::name);
  if (profile == gpu.board->profiles.end()) return wanted + " is no profile of this board";
  if (std::string why = gpu.WhyNot(*profile, start); !why.empty()) return why;
  FakeInstance& instance = gpu.Add(*profile, start, described.value("generation", gpu.generation));
  const auto compute = described.find("compute");
  if (compute == described.end()) {
    instance.AddCompute(0, profile->compute_slices()).processes =
        described.value("processes", std::vector<unsigned>());
    return "";
  }
  for (const json& one : *compute) {
    if (!instance.HasRoom(one.at("start"), one.at("slices"))) return "no room for " + one.dump();
    FakeCompute& added = instance.AddCompute(one.at("start"), one.at("slices"));
    added.id = one.value("id", added.id);
    added.processes = one.value("processes", std::vector<unsigned>());
  }
  return "";
}

constexpr std::pair<const char*, long long Sensors::*> kSensors[] = {
    {"energy_mj", &Sensors::energy_mj},
    {"utilization", &Sensors::utilization},
    {"power_mw", &Sensors::power_mw},
    {"temperature", &Sensors::temperature},
    {"sm_clock", &Sensors::sm_clock},
    {"memory_clock", &Sensors::memory_clock},
    {"memory_used", &Sensors::memory_used},
    {"ecc_corrected", &Sensors::ecc_corrected},
    {"ecc_uncorrected", &Sensors::ecc_uncorrected}};

Sensors GetSensors(const json& gpu) {
  Sensors sensors;
  const json described = gpu.value("sensors", json::object());
  for (const auto& [name, member] : kSensors) sensors.*member = described.value(name, -1LL);
  sensors.xids = described.value("xids", std::vector<unsigned>());
  return sensors;
}

json ToJson(const Sensors& sensors) {
  json described = {{"xids", sensors.xids}};
  for (const auto& [name, member] : kSensors) described[name] = sensors.*member;
  return described;
}

std::string AddGpu(Machine& machine, const json& described) {
  auto gpu = std::make_unique<FakeGpu>();
  gpu->index = static_cast<unsigned>(machine.gpus.size());
  const std::string board = described.value("board", "H200");
  gpu->board = FindBoard(board);
  if (gpu->board == nullptr) return board + " is no board";
  gpu->mig = described.value("mig", false);
  gpu->mig_pending = described.value("mig_pending", gpu->mig);
  gpu->lost = described.value("lost", false);
  gpu->reset_required = described.value("reset_required", false);
  gpu->compute_mode = described.value("compute_mode", 0);
  gpu->generation = described.value("generation", 0U);
  gpu->processes = described.value("processes", std::vector<unsigned>());
  gpu->sensors = GetSensors(described);
  gpu->self = {.gpu = gpu.get()};
  for (const json& instance : described.value("instances", json::array())) {
    if (std::string wrong = AddInstance(*gpu, instance); !wrong.empty()) return wrong;
  }
  machine.gpus.push_back(std::move(gpu));
  return "";
}

json ToJson(const FakeInstance& instance) {
  json compute = json::array();
  for (const FakeCompute& one : instance.compute) {
    compute.push_back({{"id", one.id},
                       {"start", one.start},
                       {"slices", one.slices},
                       {"processes", one.processes}});
  }
  return {{"profile", instance.profile->name},
          {"start", instance.start},
          {"generation", instance.generation},
          {"compute", compute}};
}

json ToJson(const FakeGpu& gpu) {
  json instances = json::array();
  for (const auto& [start, instance] : gpu.instances) instances.push_back(ToJson(instance));
  return {{"board", gpu.board->name},
          {"mig", gpu.mig},
          {"mig_pending", gpu.mig_pending},
          {"lost", gpu.lost},
          {"reset_required", gpu.reset_required},
          {"compute_mode", gpu.compute_mode},
          {"generation", gpu.generation},
          {"processes", gpu.processes},
          {"sensors", ToJson(gpu.sensors)},
          {"instances", instances}};
}

}  // namespace

// Numbers GPU instances like the driver.
unsigned FakeInstance::id() const {
  switch (profile->slices) {
    case 1:
      return 7 + start;
    case 2:
      return 3 + start / 2;
    case 4:
      return 1 + start / 4;
    default:
      return 0;
  }
}

bool FakeInstance::HasRoom(unsigned compute_start, unsigned slices) const {
  for (const ComputeProfile& offered : GetComputeProfiles(*profile)) {
    if (offered.slices != slices ||
        std::ranges::find(offered.starts, compute_start) == offered.starts.end()) {
      continue;
    }
    return std::ranges::none_of(compute, [&](const FakeCompute& other) {
      return compute_start < other.start + other.slices && other.start < compute_start + slices;
    });
  }
  return false;
}

FakeCompute& FakeInstance::AddCompute(unsigned compute_start, unsigned slices) {
  unsigned free_id = 0;
  while (std::ranges::find(compute, free_id, &FakeCompute::id) != compute.end()) ++free_id;
  FakeCompute& added =
      compute.emplace_back(FakeCompute{.id = free_id, .slices = slices, .start = compute_start});
  added.target = {.gpu = gpu, .instance = this, .compute = &added};
  return added;
}

std::string FakeGpu::WhyNot(const Profile& profile, unsigned start) const {
  const std::string name(profile.name);
  if (std::ranges::find(profile.starts, start) == profile.starts.end()) {
    return name + " cannot start at " + std::to_string(start);
  }
  unsigned same = 0;
  for (const auto& [other_start, other] : instances) {
    if (start < other_start + other.profile->slices && other_start < start + profile.slices) {
      return name + " at " + std::to_string(start) + " overlaps another";
    }
    same += other.profile == &profile ? 1U : 0U;
  }
  return same == profile.count_max ? "more of " + name + " than the board has" : "";
}

FakeInstance& FakeGpu::Add(const Profile& profile, unsigned start, unsigned instance_generation) {
  FakeInstance& added = instances[start];
  added = {.gpu = this, .profile = &profile, .start = start, .generation = instance_generation};
  return added;
}

std::string GetUuid(const Target& target) {
  char text[64];
  const unsigned generation = target.instance != nullptr ? target.instance->generation : 0;
  const unsigned place =
      target.instance != nullptr ? target.instance->start + (target.compute->id << 8) : 0;
  std::snprintf(text, sizeof text, "%s-%08x-fa4e-4000-8000-%06x%06x",
                target.instance != nullptr ? "MIG" : "GPU", 0xa0000000U + target.gpu->index,
                generation, place);
  return text;
}

void ReadSensors(const std::string& text, Machine& machine) {
  const json described = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const json gpus = described.is_object() ? described.value("gpus", json::array()) : json();
  for (std::size_t i = 0; i < std::min(gpus.size(), machine.gpus.size()); ++i) {
    machine.gpus[i]->sensors = GetSensors(gpus[i]);
  }
}

std::string ReadMachine(const std::string& text, Machine& machine) try {
  const json described = json::parse(text);
  machine.driver = described.value("driver", machine.driver);
  machine.cuda = described.value("cuda", machine.cuda);
  machine.privileged = described.value("privileged", true);
  for (const json& gpu : described.value("gpus", json::array())) {
    if (std::string wrong = AddGpu(machine, gpu); !wrong.empty()) return wrong;
  }
  for (const json& rule : described.value("fail", json::array())) {
    machine.fails.push_back({.call = rule.at("call"),
                             .at = rule.value("at", 0U),
                             .and_later = rule.value("and_later", false),
                             .kill = rule.value("kill", false),
                             .code = static_cast<Code>(rule.value("code", 999))});
  }
  return "";
} catch (const json::exception& error) {
  return error.what();
}

std::string WriteMachine(const Machine& machine) {
  json gpus = json::array(), fails = json::array();
  for (const auto& gpu : machine.gpus) gpus.push_back(ToJson(*gpu));
  for (const FailRule& rule : machine.fails) {
    fails.push_back({{"call", rule.call},
                     {"at", rule.at},
                     {"and_later", rule.and_later},
                     {"kill", rule.kill},
                     {"code", static_cast<int>(rule.code)}});
  }
  return json{{"driver", machine.driver},
              {"cuda", machine.cuda},
              {"privileged", machine.privileged},
              {"gpus", gpus},
              {"fail", fails}}
      .dump();
}

}  // namespace gpushared::testing::fake_nvml
