// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/ptx_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "common/ptx/text/module.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/target.h"
#include "server/device/cpu/executor/program.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/kernel_reach.h"
#include "server/ptx/analysis/type_check.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"
#include "server/tools/ctl/module_file.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;
namespace executor = device::executor;

// Reasons why each kernel of a module fails a check; empty for kernels that pass.
using Reasons = std::map<std::string, std::string>;

Result<Reasons> RunsOnCpu(const ptx::Module& module) {
  Status target = ptx::CheckTarget(module, executor::kNewestArchitecture);
  if (!target.ok()) return target;
  const Result<executor::ModuleLayout> layout = executor::LayOutModule(module);
  if (!layout) return layout.status();
  const auto image = executor::DecodeModule(module, *layout, 0, executor::Flavour::kBaseline);
  if (!image) return image.status();
  Reasons reasons;
  for (std::size_t i = 0; i < (*image)->size(); ++i) {
    const device::KernelInfo& info = (*image)->program(i).info();
    reasons[info.name] = info.unsupported;
  }
  return reasons;
}

Result<Reasons> HasClaim(const ptx::Module& module) {
  Reasons reasons;
  for (const ptx::PreemptibleKernel& kernel : ptx::Claim(module).kernels) {
    reasons[kernel.kernel] = kernel.reason;
  }
  return reasons;
}

Reasons GetReasons(const ptx::Module& module, const Result<ptx::Fenced>& fenced) {
  Reasons reasons;
  if (!fenced) {
    for (const ptx::Item& item : module.items) {
      const auto* kernel = std::get_if<ptx::Function>(&item);
      if (kernel != nullptr && kernel->is_entry) reasons[kernel->name] = fenced.status().message();
    }
    return reasons;
  }
  for (const ptx::FencedKernel& kernel : fenced->kernels) reasons[kernel.kernel] = kernel.reason;
  return reasons;
}

Result<Reasons> HasFence(const ptx::Module& module) {
  return GetReasons(module, ptx::Fence(module, ptx::kFenceRangeBytesMin));
}
Result<Reasons> HasContainment(const ptx::Module& module) {
  return GetReasons(module, ptx::Contain(module, ptx::kFenceRangeBytesMin));
}

std::map<std::string, ptx::KernelReach> GetReaches(const ptx::Module& module) {
  const ptx::CallGraph calls(module);
  ptx::ReachFinder finder(module, calls);
  std::map<std::string, ptx::KernelReach> reaches;
  for (const ptx::Item& item : module.items) {
    const auto* kernel = std::get_if<ptx::Function>(&item);
    if (kernel == nullptr || !kernel->is_entry || !kernel->body) continue;
    reaches[kernel->name] = finder.Find(*kernel);
  }
  return reaches;
}

Result<Reasons> HasReach(const ptx::Module& module) {
  Reasons reasons;
  for (const auto& [name, reach] : GetReaches(module)) reasons[name] = reach.why_unknown;
  return reasons;
}

struct Check {
  const char* name;     // Key in JSON.
  const char* heading;  // Heading in text.
  Result<Reasons> (*run)(const ptx::Module& module);
};
constexpr std::array kChecks = {
    Check{"runs_on_cpu", "runs on cpu", &RunsOnCpu},
    Check{"claim", "can be claimed", &HasClaim},
    Check{"fence", "can be fenced", &HasFence},
    Check{"contain", "can be contained", &HasContainment},
    Check{"reach", "reach is known", &HasReach},
};

json CheckModule(const FoundModule& found, json* kernels) {
  if (!found.ptx) return found.place + ": " + found.ptx.status().message();
  const Result<ptx::Module> module = ptx::Parse(*found.ptx);
  if (!module) return found.place + ": " + module.status().message();
  if (const Status types = ptx::CheckTypes(*module); !types.ok()) {
    return found.place + ": " + types.message();
  }
  std::vector<std::pair<const Check*, Reasons>> results;
  for (const Check& check : kChecks) {
    Result<Reasons> reasons = check.run(*module);
    if (!reasons) return found.place + ": " + reasons.status().message();
    results.emplace_back(&check, *std::move(reasons));
  }
  const std::map<std::string, ptx::KernelReach> reaches = GetReaches(*module);
  for (const ptx::Item& item : module->items) {
    const auto* kernel = std::get_if<ptx::Function>(&item);
    if (kernel == nullptr || !kernel->is_entry || !kernel->body) continue;
    json entry = {{"name", kernel->name}, {"module", found.place}, {"reasons", json::array()}};
    for (const auto& [check, reasons] : results) {
      const auto reason = reasons.find(kernel->name);
      const bool passes = reason != reasons.end() && reason->second.empty();
      entry[check->name] = passes;
      if (passes) continue;
      const std::string why = reason == reasons.end() ? "not checked" : reason->second;
      entry["reasons"].push_back(std::string(check->name) + ": " + why);
    }
    entry["reach_offsets"] = reaches.at(kernel->name).offsets;
    entry["reaches_variables"] = reaches.at(kernel->name).reaches_variables;
    kernels->push_back(std::move(entry));
  }
  return nullptr;
}

}  // namespace

Result<json> CheckPtx(std::span<const std::byte> file) {
  const Result<std::vector<FoundModule>> modules = FindModules(file);
  if (!modules) return modules.status();
  json checked = {
      {"modules", modules->size()}, {"kernels", json::array()}, {"problems", json::array()}};
  for (const FoundModule& found : *modules) {
    json problem = CheckModule(found, &checked["kernels"]);
    if (!problem.is_null()) checked["problems"].push_back(std::move(problem));
  }
  return checked;
}

std::string PtxReport(const json& checked) {
  const json& kernels = checked["kernels"];
  const auto padded = [](std::string text, std::size_t to) {
    text.resize(std::max(text.size(), to), ' ');
    return text + "  ";
  };
  // Names are the last column, because names of C++ templates exceed any reasonable width.
  std::string text;
  for (const Check& check : kChecks) text += padded(check.heading, 0);
  text += "kernel\n";
  for (const json& kernel : kernels) {
    for (const Check& check : kChecks) {
      text +=
          padded(kernel[check.name].get<bool>() ? "yes" : "no", std::string(check.heading).size());
    }
    text += kernel["name"].get<std::string>() + '\n';
    for (const json& reason : kernel["reasons"]) {
      text += "    " + reason.get<std::string>() + '\n';
    }
  }
  if (kernels.empty()) text = "no kernels\n";
  for (const json& problem : checked["problems"]) text += problem.get<std::string>() + '\n';
  if (kernels.empty()) return text;
  for (const Check& check : kChecks) {
    const auto passing = std::count_if(kernels.begin(), kernels.end(), [&](const json& kernel) {
      return kernel[check.name].get<bool>();
    });
    text += std::string(check.heading) + ": " + std::to_string(passing) + " of " +
            std::to_string(kernels.size()) + " kernels\n";
  }
  return text;
}

}  // namespace gpushared::server
