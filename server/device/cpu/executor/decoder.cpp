// SPDX-License-Identifier: Apache-2.0
// Translates modules to programs: selects the functions that a kernel needs and lays out its
// shared, local and parameter variables.
#include "server/device/cpu/executor/decoder.h"

#include <cpuid.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <unordered_set>
#include <utility>

#include "gpushared/limits.h"

#include "common/ptx/text/editor.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/decode.h"
#include "server/device/kernel_reach.h"
#include "server/device/shown_name.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/function_address.h"
#include "server/ptx/analysis/launch_bounds.h"

namespace gpushared::device::executor {
namespace {

constexpr std::size_t kMissingEntriesMax = 1024;
// Limit of an entry, which may contain a name of megabytes.
constexpr std::size_t kMissingEntryBytesMax = 1024;
constexpr std::uint64_t kAreaBytesMax = std::uint64_t{16} << 10;

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

std::uint64_t GetAlignment(const ptx::Variable& variable) {
  return std::max<std::uint64_t>(variable.NaturalAlignment(), 1);
}

// Lays out variables one after the other in one space, up to a limit.
class Placer {
 public:
  explicit Placer(std::uint64_t limit) : limit_(limit) {}
  // Returns the offset of the variable, or no value if the limit is exceeded.
  std::optional<std::uint64_t> Place(const ptx::Variable& variable) {
    const std::uint64_t alignment = GetAlignment(variable);
    const std::uint64_t size = variable.Bytes();
    if (alignment > 4096 || size > limit_) return std::nullopt;
    const std::uint64_t offset = RoundUp(bytes_, alignment);
    if (offset + size > limit_) return std::nullopt;
    bytes_ = offset + size;
    return offset;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t limit_;
  std::uint64_t bytes_ = 0;
};

using SharedVariables = decltype(ModuleIndex::shared);

// Collects the shared variables that the operand names.
void CollectUsed(const ptx::Operand& operand, const SharedVariables& variables,
                 std::unordered_set<std::string_view>* used) {
  const auto found = operand.text.empty() ? variables.end() : variables.find(operand.text);
  if (found != variables.end()) used->insert(found->first);
  for (const ptx::Operand& element : operand.elements) CollectUsed(element, variables, used);
}

// Returns the name of the function that an instruction calls, or of the register with its address;
// empty if the instruction is not a call.
std::string GetCallee(const ptx::Instruction& instruction) {
  if (std::string_view(instruction.opcode) != "call") return "";
  for (const ptx::Operand& operand : instruction.operands) {
    if (operand.kind != ptx::Operand::Kind::kList) return operand.text;
  }
  return "";
}

// Like Module::FindFunction, prefers the first function with a body, even a kernel, which cannot be
// called.
ModuleIndex GetIndex(const ptx::Module& module) {
  ModuleIndex index;
  index.module = &module;
  for (const ptx::Item& item : module.items) {
    if (const auto* function = std::get_if<ptx::Function>(&item)) {
      if (function->body) index.functions.emplace(function->name, function);
    } else if (const auto* variable = std::get_if<ptx::Variable>(&item)) {
      if (variable->space == ptx::StateSpace::kShared) {
        index.shared[variable->name].push_back(variable);
      }
      // The total is limited by kModuleVariableBytesMax, see LayOutModule.
      const bool is_constant =
          variable->space == ptx::StateSpace::kConstant && variable->linkage != ".extern";
      if (is_constant) index.constant_bytes += static_cast<std::uint32_t>(variable->Bytes());
    }
  }
  std::erase_if(index.functions, [](const auto& entry) { return entry.second->is_entry; });
  return index;
}

// Builds the Program of one kernel.
class ProgramBuilder {
 public:
  ProgramBuilder(ModuleIndex& module, ptx::ReachFinder& reaches, Flavour flavour)
      : reaches_(reaches), code_(std::make_unique<Code>()) {
    plan_.module = &module;
    plan_.flavour = flavour;
    plan_.code = code_.get();
  }

  Result<std::unique_ptr<const Program>> Build(const ptx::Function& kernel) {
    info_.name = code_->kernel = kernel.name;
    code_->target_lists.resize(1);
    if (Status found = AddFunction(kernel); !found.ok()) return found;
    PlaceShared();
    for (FunctionPlan& function : plan_.functions) PlaceOwnVariables(&function);
    DescribeKernel(kernel);
    FindReach();
    code_->functions.resize(plan_.functions.size());
    for (std::uint32_t i = 0; i < plan_.functions.size(); ++i) FunctionDecoder(plan_, i).Decode();
    code_->local_bytes_per_thread = LocalBytes();
    info_.static_shared_bytes = code_->static_shared_bytes;
    DescribeCode();
    info_.unsupported = ptx::KeptReason(plan_.missing.Text(), plan_.module->reason_bytes_left);
    return std::make_unique<const Program>(std::move(info_), std::move(code_));
  }

 private:
  // Adds the kernel and all functions that it may call, directly or not.
  Status AddFunction(const ptx::Function& kernel) {
    plan_.functions.push_back({});
    // The kernel is added here and not by name, because kernels cannot be called.
    plan_.functions.back().function = &kernel;
    for (std::size_t i = 0; i < plan_.functions.size(); ++i) {
      const ptx::Function& function = *plan_.functions[i].function;
      if (Status counted = Count(kernel, function); !counted.ok()) return counted;
      if (i == 0) own_flow_ = ptx::AnalyseControlFlow(function);
      const Result<ptx::ControlFlow>& flow = i == 0 ? *own_flow_ : reaches_.GetFlow(function);
      if (!flow.ok()) return flow.status();
      plan_.functions[i].flow = &*flow;
      std::vector<std::uint32_t> calls;
      for (const ptx::Instruction& instruction : flow->instructions) {
        const std::string_view opcode = instruction.opcode;
        plan_.functions[i].has_stack |=
            opcode == "alloca" || opcode == "stacksave" || opcode == "stackrestore";
        const std::string name = GetCallee(instruction);
        if (name.empty()) continue;
        const auto callee = plan_.module->functions.find(name);
        if (callee != plan_.module->functions.end()) {
          calls.push_back(IndexOfFunction(*callee->second));
        } else if (flow->FindRegister(name) != ptx::kNoRegister) {
          plan_.functions[i].calls_any = true;
          AddCallable();
        }
      }
      plan_.functions[i].calls = std::move(calls);
    }
    return {};
  }

  // Returns the function's index in the plan. Adds the function if it is new.
  std::uint32_t IndexOfFunction(const ptx::Function& function) {
    const auto [found, is_new] = plan_.function_index.try_emplace(
        function.name, static_cast<std::uint32_t>(plan_.functions.size()));
    if (is_new) {
      plan_.functions.push_back({});
      plan_.functions.back().function = &function;
    }
    return found->second;
  }

  // Adds the targets of indirect calls, unless they have been added.
  void AddCallable() {
    if (!plan_.callable.empty()) return;
    auto& taken = plan_.module->address_taken;
    if (!taken) taken = ptx::FunctionsWithAddressTaken(*plan_.module->module);
    for (const ptx::Function* function : *taken) {
      const std::uint32_t index = IndexOfFunction(*function);
      plan_.callable.push_back(index);
      code_->callable.push_back({plan_.module->symbols.at(function->name).address, index});
    }
  }

  Status Count(const ptx::Function& kernel, const ptx::Function& function) {
    plan_.module->statements += 1 + function.body->size();
    if (plan_.module->statements <= kDecodedStatementsMax) return {};
    return {StatusCode::kLimitExceeded,
            "ptx: " + ptx::GetLine(kernel.position) + "with kernel '" + ShownName(kernel.name) +
                "' the module has " + std::to_string(plan_.module->statements) +
                " statements to decode, counting functions once for each kernel; at most " +
                std::to_string(kDecodedStatementsMax) + " are allowed"};
  }

  // Places static shared variables first, then dynamic arrays, which all have the same address.
  void PlaceShared() {
    const SharedVariables& shared = plan_.module->shared;
    std::unordered_set<std::string_view> used;
    for (const FunctionPlan& function : plan_.functions) {
      if (shared.empty()) break;
      for (const ptx::Instruction& instruction : function.flow->instructions) {
        for (const ptx::Operand& operand : instruction.operands) {
          CollectUsed(operand, shared, &used);
        }
      }
    }
    Placer placer(kSharedBytesMax);
    std::uint64_t dynamic_alignment = 16;
    std::vector<std::pair<SymbolTable*, const ptx::Variable*>> dynamic;
    const auto place = [&](const ptx::Variable& variable, SymbolTable* table) {
      if (variable.space != ptx::StateSpace::kShared) return;
      if (variable.Bytes() == 0) {
        dynamic.push_back({table, &variable});
        dynamic_alignment =
            std::max(dynamic_alignment, std::min<std::uint64_t>(GetAlignment(variable), 4096));
        return;
      }
      const auto offset = placer.Place(variable);
      if (!offset) {
        plan_.missing.Add(variable.position.line,
                          "shared memory beyond " + std::to_string(kSharedBytesMax) + " bytes");
        return;
      }
      (*table)[variable.name] = {Symbol::Kind::kShared, *offset, variable.Bytes()};
    };
    std::vector<const ptx::Variable*> of_module;
    for (const std::string_view name : used) {
      const std::vector<const ptx::Variable*>& named = shared.at(name);
      of_module.insert(of_module.end(), named.begin(), named.end());
    }
    std::ranges::sort(of_module);  // Restores source order.
    for (const ptx::Variable* variable : of_module) place(*variable, &plan_.symbols);
    for (FunctionPlan& function : plan_.functions) {
      for (const ptx::Variable& variable : function.flow->variables) {
        place(variable, &function.symbols);
      }
    }
    std::uint64_t end = placer.bytes();
    if (!dynamic.empty()) end = RoundUp(end, dynamic_alignment);
    for (const auto& [table, variable] : dynamic) {
      (*table)[variable->name] = {Symbol::Kind::kShared, end, 0};
    }
    code_->static_shared_bytes = static_cast<std::uint32_t>(end);
  }

  void PlaceOwnVariables(FunctionPlan* function) {
    Placer local(kLocalBytesPerThreadMax), area(kAreaBytesMax), parameters(kParameterBytesMax);
    const auto place = [&](const ptx::Variable& variable, Placer* placer, Symbol::Kind kind) {
      const auto offset = placer->Place(variable);
      if (!offset) {
        plan_.missing.Add(variable.position.line, "size of '" + variable.name + "'");
        return;
      }
      function->symbols[variable.name] = {kind, *offset, variable.Bytes()};
    };
    const bool entry = function->function->is_entry;
    for (const ptx::Variable& variable : function->function->returns) {
      place(variable, &area, Symbol::Kind::kArea);
    }
    for (const ptx::Variable& variable : function->function->parameters) {
      place(variable, entry ? &parameters : &area,
            entry ? Symbol::Kind::kParameter : Symbol::Kind::kArea);
    }
    for (const ptx::Variable& variable : function->flow->variables) {
      if (variable.space == ptx::StateSpace::kLocal) place(variable, &local, Symbol::Kind::kLocal);
      if (variable.space == ptx::StateSpace::kParameter)
        place(variable, &area, Symbol::Kind::kArea);
    }
    function->local_bytes = RoundUp(local.bytes(), 16);
    function->area_bytes = static_cast<std::uint32_t>(area.bytes());
  }

  void DescribeKernel(const ptx::Function& kernel) {
    for (const ptx::Variable& parameter : kernel.parameters) {
      const auto symbol = plan_.functions.front().symbols.find(parameter.name);
      if (symbol == plan_.functions.front().symbols.end()) continue;
      const ParameterLayout layout = {static_cast<std::uint32_t>(symbol->second.address),
                                      static_cast<std::uint32_t>(symbol->second.bytes)};
      info_.parameters.push_back(layout);
      info_.parameter_bytes = layout.offset + layout.bytes;
    }
    const ptx::LaunchBounds bounds = ptx::GetLaunchBounds(kernel);
    info_.threads_per_block_max = kThreadsPerBlockMax;
    if (bounds.threads_per_block_max != 0) {
      info_.threads_per_block_max = std::min(kThreadsPerBlockMax, bounds.threads_per_block_max);
    }
    info_.required_block = bounds.block;
    info_.required_cluster = bounds.cluster;
    if (std::ranges::any_of(bounds.cluster, [](std::uint32_t blocks) { return blocks > 1; })) {
      plan_.missing.Add(kernel.position.line, "clusters of more than one block");
    }
    for (const ptx::Directive& directive : kernel.performance) LimitRegisters(directive.text);
  }

  void FindReach() {
    std::vector<ptx::ReachFinder::AnalysedFunction> functions;
    for (const FunctionPlan& plan : plan_.functions) {
      functions.push_back({.function = plan.function, .flow = plan.flow});
    }
    SetReach(info_, reaches_.Find(functions));
  }

  void DescribeCode() {
    for (const FunctionCode& function : code_->functions) {
      // Subtracts the additional row of each kind, which receives writes to unused registers.
      const std::uint32_t narrow =
          (function.wide_begin - function.narrow_begin) / kNarrowRowBytes - 1;
      const std::uint32_t wide = (function.image_offset - function.wide_begin) / kWideRowBytes - 1;
      info_.registers = std::max(info_.registers, narrow + 2 * wide);
    }
    info_.registers = std::clamp(info_.registers, 1u, registers_most_);
    info_.local_bytes = static_cast<std::uint32_t>(code_->local_bytes_per_thread);
    info_.constant_bytes = plan_.module->constant_bytes;
    info_.dynamic_shared_bytes_max =
        kSharedBytesMax - std::min(kSharedBytesMax, code_->static_shared_bytes);
    info_.ptx_version = ptx::TargetArchitecture(*plan_.module->module);
    info_.binary_version = kComputeCapability;
  }

  // ".maxnreg 64": on a GPU, further registers are spilled to local memory. Here all registers are
  // memory, so the limit is only reported.
  void LimitRegisters(const std::string& text) {
    constexpr std::string_view kName = ".maxnreg";
    if (!text.starts_with(kName)) return;
    const unsigned long most = std::strtoul(text.c_str() + kName.size(), nullptr, 10);
    if (most == 0) return;
    registers_most_ = static_cast<std::uint32_t>(std::min<unsigned long>(most, registers_most_));
  }

  // Returns call `number` of a function, or no value after the last one. Indirect calls go to an
  // artificial node after all functions, which calls every possible target.
  std::optional<std::uint32_t> GetCall(std::uint32_t function, std::size_t number) const {
    const auto any = static_cast<std::uint32_t>(plan_.functions.size());
    const auto& calls = function == any ? plan_.callable : plan_.functions[function].calls;
    if (number < calls.size()) return calls[number];
    const bool more = function != any && plan_.functions[function].calls_any;
    return more && number == calls.size() ? std::optional(any) : std::nullopt;
  }

  // Returns the local bytes of a thread on the deepest call path.
  std::uint64_t LocalBytes() {
    bool recursive = false;
    const std::size_t nodes = plan_.functions.size() + 1;
    std::vector<std::uint64_t> below(nodes, 0);
    std::vector<std::uint8_t> state(nodes, 0);  // 1: on the current path; 2: done.
    struct Visit {
      std::uint32_t function;
      std::size_t next_call;
    };
    std::vector<Visit> path = {{0, 0}};
    state[0] = 1;
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::uint32_t function = visit.function;
      if (const auto callee = GetCall(function, visit.next_call)) {
        ++visit.next_call;
        recursive |= state[*callee] == 1;
        if (state[*callee] == 2) below[function] = std::max(below[function], below[*callee]);
        if (state[*callee] == 0) {
          state[*callee] = 1;
          path.push_back({*callee, 0});
        }
        continue;
      }
      if (function != nodes - 1) below[function] += plan_.functions[function].local_bytes;
      state[function] = 2;
      path.pop_back();
      if (!path.empty()) {
        std::uint64_t& caller = below[path.back().function];
        caller = std::max(caller, below[function]);
      }
    }
    const bool has_stack = std::ranges::any_of(plan_.functions, &FunctionPlan::has_stack);
    code_->uses_stack = recursive || has_stack;
    const std::uint64_t bytes =
        below[0] + (recursive ? kRecursionLocalBytes : 0) + (has_stack ? kStackBytes : 0);
    if (bytes > kLocalBytesPerThreadMax) {
      plan_.missing.Add(plan_.functions[0].function->position.line,
                        std::to_string(bytes) + " bytes of local memory per thread");
    }
    return bytes;
  }

  ProgramPlan plan_;
  ptx::ReachFinder& reaches_;
  std::unique_ptr<Code> code_;
  KernelInfo info_;
  // Control flow of the kernel, which the programs of other kernels do not need.
  std::optional<Result<ptx::ControlFlow>> own_flow_;
  std::uint32_t registers_most_ = kRegistersPerThreadMax;
};

}  // namespace

void MissingList::Add(std::uint32_t line, const std::string& missing) {
  std::string what = ShownName(missing, kMissingEntryBytesMax);
  if (seen_.contains(what)) return;
  if (entries_.size() >= kMissingEntriesMax) {
    ++left_out_;
    return;
  }
  seen_.insert(what);
  entries_.push_back({line, std::move(what)});
}

std::string MissingList::Text() const {
  std::string text;
  for (const Entry& entry : entries_) {
    if (!text.empty()) text += "; ";
    text += "line " + std::to_string(entry.line) + ": " + entry.what;
  }
  if (left_out_ != 0) text += "; and " + std::to_string(left_out_) + " more";
  return text;
}

Program::Program(KernelInfo info, std::unique_ptr<const Code> code)
    : info_(std::move(info)), code_(std::move(code)) {}
Program::~Program() = default;
bool Program::allocates() const { return code_->allocates; }

Flavour BestFlavour() {
  __builtin_cpu_init();
  // Uses CPUID because clang 14 does not support the name of the feature.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c;
  return v3 ? Flavour::kV3 : Flavour::kBaseline;
}

Status DecodeKernels(const ptx::Module& module, const ModuleLayout& layout,
                     std::uint64_t variables_base, Flavour flavour,
                     const std::function<void(std::unique_ptr<const Program>)>& take) {
  ModuleIndex index = GetIndex(module);
  const ptx::CallGraph calls(module);
  ptx::ReachFinder reaches(module, calls);
  for (const VariablePlacement& variable : layout.variables) {
    index.symbols[variable.name] = {Symbol::Kind::kGlobal, variables_base + variable.offset,
                                    variable.bytes};
  }
  for (const auto& [name, address] : ptx::FunctionAddresses(module)) {
    index.symbols.try_emplace(std::string(name), Symbol{Symbol::Kind::kFunction, address, 0});
  }
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr || !function->is_entry || !function->body) continue;
    auto program = ProgramBuilder(index, reaches, flavour).Build(*function);
    if (!program.ok()) return program.status();
    take(*std::move(program));
  }
  return {};
}

Result<std::unique_ptr<ModuleImage>> DecodeModule(const ptx::Module& module,
                                                  const ModuleLayout& layout,
                                                  std::uint64_t variables_base, Flavour flavour) {
  std::vector<std::unique_ptr<const Program>> programs;
  Status decoded = DecodeKernels(module, layout, variables_base, flavour,
                                 [&](auto program) { programs.push_back(std::move(program)); });
  if (!decoded.ok()) return decoded;
  return std::make_unique<ModuleImage>(std::move(programs));
}

}  // namespace gpushared::device::executor
