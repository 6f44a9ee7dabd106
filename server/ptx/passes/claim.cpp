// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/claim.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "common/ptx/text/editor.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/features.h"
#include "server/ptx/analysis/kernel_scan.h"

namespace gpushared::ptx {
namespace {

constexpr std::array<std::string_view, 3> kBlockIndex = {"%ctaid.x", "%ctaid.y", "%ctaid.z"};
constexpr std::array<std::string_view, 3> kGridSize = {"%nctaid.x", "%nctaid.y", "%nctaid.z"};
constexpr std::string_view kDynamicShared = "%dynamic_smem_size";

// Special registers whose value would differ between the several launches of one preempted grid, or
// would grow by an unknown amount because of the shared memory for the claim.
constexpr std::array<std::string_view, 4> kOfTheLaunch = {"%gridid", "%total_smem_size",
                                                          "%aggr_smem_size", "%reserved_smem"};

constexpr std::array<Feature, 5> kNotClaimed = {
    Feature::kGridSynchronisation, Feature::kClusters, Feature::kWaitsForBlocks,
    Feature::kBlockIndexInFunction, Feature::kMissingFunction};

// Replaced reads of special registers become reads of a 32-bit register, so the instruction must
// accept one.
bool Takes32Bits(const Instruction& instruction, const Operand& operand) {
  const bool is_element = std::ranges::none_of(
      instruction.operands, [&](const Operand& own) { return &own == &operand; });
  if (is_element || instruction.modifiers.empty()) return true;
  const std::uint32_t bytes = TypeBytes(instruction.modifiers.back());
  return bytes == 4 || bytes == 0;
}

// Dimensions of the block index that a body reads, and the reason why the kernel cannot be claimed.
struct Reads {
  std::array<bool, 3> index = {false, false, false};
  std::string reason;
};

bool IsOneOf(std::string_view text, const std::array<std::string_view, 3>& names) {
  return std::ranges::find(names, text) != names.end();
}

void RecordRead(const Function& function, const Instruction& instruction, const Operand& operand,
                Reads& reads) {
  const std::string_view text = operand.text;
  const std::size_t at = text.find('%');
  if (at == std::string_view::npos || !reads.reason.empty()) return;
  const bool replaced =
      IsOneOf(text, kBlockIndex) || IsOneOf(text, kGridSize) || text == kDynamicShared;
  if (replaced) {
    if (!function.is_entry) {
      reads.reason = GetLine(instruction.position) + "reads " + std::string(text) +
                     " in function '" + function.name + "'";
    } else if (!Takes32Bits(instruction, operand) || operand.kind != Operand::Kind::kName) {
      reads.reason = GetLine(instruction.position) + "reads " + std::string(text) +
                     " other than as a 32-bit register";
    }
    for (std::size_t d = 0; d < 3; ++d) reads.index[d] |= text == kBlockIndex[d];
    return;
  }
  const std::string_view name = text.substr(at);
  const bool place = name.find("ctaid") != std::string_view::npos || name.starts_with("%cluster") ||
                     name.starts_with("%ncluster") || name.starts_with("%is_explicit_cluster");
  const bool of_launch = name.starts_with(kDynamicShared) ||
                         std::ranges::any_of(kOfTheLaunch, [&](std::string_view special) {
                           return name.starts_with(special);
                         });
  if (place || of_launch) {
    reads.reason = GetLine(instruction.position) + "reads " + std::string(text) +
                   ", which claiming would change";
  }
}

// Returns what a function's body reads that depends on the position of the block in the launch.
Reads FindReads(const Function& function) {
  Reads reads;
  for (const Statement& statement : *function.body) {
    if (const auto* variable = std::get_if<Variable>(&statement)) {
      // Rejects kernels that declare .global or .const variables, because the preemptible form
      // would have its own instance of each.
      const bool in_memory =
          variable->space == StateSpace::kGlobal || variable->space == StateSpace::kConstant;
      if (in_memory && function.is_entry && reads.reason.empty()) {
        reads.reason = "line " + std::to_string(variable->position.line) + ": declares '" +
                       variable->name + "' in its body";
      }
    }
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    ForEachOperand(*instruction, [&](const Operand& operand) {
      RecordRead(function, *instruction, operand, reads);
    });
  }
  return reads;
}

// Adds the prologue to a kernel and makes its body use the claimed index.
class KernelClaim {
 public:
  KernelClaim(ModuleEditor& names, Function& kernel, std::string parameter, std::string shared)
      : editor_(names, kernel),
        parameter_(std::move(parameter)),
        shared_(std::move(shared)),
        is_strong_(HasVersion(names.module(), 6, 0) && TargetArchitecture(names.module()) >= 70) {}

  void Run(const Reads& reads) {
    const std::size_t statements = editor_.size();
    for (std::size_t d = 0; d < 3; ++d) {
      // x is always needed, because x = -1 signals that no block was claimed.
      if (d == 0 || reads.index[d]) index_[d] = editor_.NewRegister("b32");
    }
    WritePrologue();
    for (std::size_t i = 0; i < statements; ++i) {
      if (std::holds_alternative<Instruction>(editor_.At(i))) Rewrite(i);
    }
    editor_.Apply();
  }

 private:
  void Add(std::string_view spelling, std::vector<Operand> operands) {
    editor_.InsertAtEntry(Make(spelling, std::move(operands)));
  }
  void AddIf(const std::string& predicate, std::string_view spelling,
             std::vector<Operand> operands) {
    editor_.InsertAtEntry(MakeIf(predicate, spelling, std::move(operands)));
  }
  std::string LoadParameter(std::string_view type, std::size_t member) {
    std::string loaded = editor_.NewRegister(type);
    Add("ld.param." + std::string(type), {Name(loaded), Address(parameter_, GetOffset(member))});
    return loaded;
  }

  // Returns the address of three words, for x, y and z, at the end of the block's dynamic shared
  // memory. The address is rounded down, because the size need not be a multiple of 4. The
  // kClaimSharedBytes that the launch adds suffice for the 12 bytes and the rounding.
  std::string WordAddress() {
    std::string word = editor_.NewRegister("b32");
    const std::string size = editor_.NewRegister("b32");
    Add("mov.b32", {Name(word), Name(shared_)});
    Add("mov.b32", {Name(size), Name(std::string(kDynamicShared))});
    Add("add.u32", {Name(word), Name(word), Name(size)});
    Add("add.u32", {Name(word), Name(word), Integer(-12)});
    Add("and.b32", {Name(word), Name(word), Integer(-4)});
    return word;
  }

  void WritePrologue() {
    const std::string word = WordAddress();
    const std::string others = editor_.NewRegister("pred");
    const std::string wait = editor_.NewLabel();
    const std::string thread = editor_.NewRegister("b32"), part = editor_.NewRegister("b32");
    Add("mov.u32", {Name(thread), Name("%tid.x")});
    for (const char* of : {"%tid.y", "%tid.z"}) {
      Add("mov.u32", {Name(part), Name(of)});
      Add("or.b32", {Name(thread), Name(thread), Name(part)});
    }
    Add("setp.ne.u32", {Name(others), Name(thread), Integer(0)});
    AddIf(others, "bra", {Name(wait)});
    WriteClaim(word);
    editor_.InsertAtEntry(Label{.position = {}, .name = wait});
    Add("bar.sync", {Integer(0)});
    for (std::size_t d = 0; d < 3; ++d) {
      if (index_[d].empty()) continue;
      Add("ld.shared.u32", {Name(index_[d]), Address(word, 4 * GetOffset(d))});
    }
    const std::string none = editor_.NewRegister("pred");
    Add("setp.lt.s32", {Name(none), Name(index_[0]), Integer(0)});
    AddIf(none, "ret", {});
  }

  // Code for the first thread: claims a block and publishes x, y and z, or -1 as x.
  void WriteClaim(const std::string& word) {
    const std::string publish = editor_.NewLabel();
    std::array<std::string, 3> index;
    for (std::size_t d = 0; d < 3; ++d) {
      if (index_[d].empty()) continue;
      index[d] = editor_.NewRegister("b32");
      Add("mov.b32", {Name(index[d]), Integer(d == 0 ? -1 : 0)});
    }
    const std::string stop = LoadParameter("u64", offsetof(ClaimParameter, stop));
    const std::string asked = editor_.NewRegister("b32");
    // The load must bypass caches that are not coherent, because another processor writes the word
    // while the kernel runs.
    Add(is_strong_ ? "ld.relaxed.sys.global.u32" : "ld.volatile.global.u32",
        {Name(asked), Address(stop)});
    const std::string epoch = LoadParameter("u32", offsetof(ClaimParameter, epoch));
    const std::string ends = editor_.NewRegister("pred");
    Add("sub.u32", {Name(asked), Name(asked), Name(epoch)});
    Add("setp.ge.s32", {Name(ends), Name(asked), Integer(0)});
    AddIf(ends, "bra", {Name(publish)});
    const std::string counter = LoadParameter("u64", offsetof(ClaimParameter, counter));
    const std::string ticket = editor_.NewRegister("b32");
    Add("atom.global.add.u32", {Name(ticket), Address(counter), Integer(1)});
    const std::string base = LoadParameter("u32", offsetof(ClaimParameter, base));
    Add("sub.u32", {Name(ticket), Name(ticket), Name(base)});
    const std::string blocks = LoadParameter("u32", offsetof(ClaimParameter, blocks));
    Add("setp.ge.u32", {Name(ends), Name(ticket), Name(blocks)});
    AddIf(ends, "bra", {Name(publish)});
    WriteIndex(ticket, index, publish);
    editor_.InsertAtEntry(Label{.position = {}, .name = publish});
    for (std::size_t d = 0; d < 3; ++d) {
      if (index[d].empty()) continue;
      Add("st.shared.u32", {Address(word, 4 * GetOffset(d)), Name(index[d])});
    }
  }

  // Computes x, y and z of block `ticket`, x fastest. Divides only if the block is beyond the first
  // row or plane, so a grid with one row never divides.
  void WriteIndex(const std::string& ticket, const std::array<std::string, 3>& index,
                  const std::string& done) {
    const std::string within = editor_.NewRegister("pred");
    const std::string size_x = LoadParameter("u32", offsetof(ClaimParameter, grid_x));
    Add("mov.b32", {Name(index[0]), Name(ticket)});
    Add("setp.lt.u32", {Name(within), Name(ticket), Name(size_x)});
    AddIf(within, "bra", {Name(done)});
    if (index[1].empty() && index[2].empty()) {
      Add("rem.u32", {Name(index[0]), Name(ticket), Name(size_x)});
      return;
    }
    const std::string row = editor_.NewRegister("b32"), times = editor_.NewRegister("b32");
    Add("div.u32", {Name(row), Name(ticket), Name(size_x)});
    Add("mul.lo.u32", {Name(times), Name(row), Name(size_x)});
    Add("sub.u32", {Name(index[0]), Name(ticket), Name(times)});
    if (!index[1].empty()) Add("mov.b32", {Name(index[1]), Name(row)});
    const std::string size_y = LoadParameter("u32", offsetof(ClaimParameter, grid_y));
    Add("setp.lt.u32", {Name(within), Name(row), Name(size_y)});
    AddIf(within, "bra", {Name(done)});
    const std::string plane = editor_.NewRegister("b32");
    Add("div.u32", {Name(plane), Name(row), Name(size_y)});
    if (!index[1].empty()) {
      Add("mul.lo.u32", {Name(times), Name(plane), Name(size_y)});
      Add("sub.u32", {Name(index[1]), Name(row), Name(times)});
    }
    if (!index[2].empty()) Add("mov.b32", {Name(index[2]), Name(plane)});
  }

  // Replaces reads of the hardware's index and sizes by the claimed ones. Sizes are loaded where
  // they are read, because a parameter occupies no register until then.
  void Rewrite(std::size_t i) {
    auto& instruction = std::get<Instruction>(editor_.At(i));
    ForEachOperand(instruction, [&](Operand& operand) {
      for (std::size_t d = 0; d < 3; ++d) {
        if (operand.text == kBlockIndex[d]) operand.text = index_[d];
        if (operand.text != kGridSize[d]) continue;
        operand.text = editor_.NewRegister("b32");
        const std::size_t member = offsetof(ClaimParameter, grid_x) + 4 * d;
        editor_.InsertBefore(
            i, Make("ld.param.u32", {Name(operand.text), Address(parameter_, GetOffset(member))}));
      }
      if (operand.text != kDynamicShared) return;
      const std::string bytes = editor_.NewRegister("b32");
      editor_.InsertBefore(i, Make("mov.b32", {Name(bytes), Name(std::string(kDynamicShared))}));
      editor_.InsertBefore(
          i, Make("sub.u32", {Name(bytes), Name(bytes), Integer(std::int64_t{kClaimSharedBytes})}));
      operand.text = bytes;
    });
  }

  FunctionEditor editor_;
  const std::string parameter_;
  const std::string shared_;
  const bool is_strong_;
  std::array<std::string, 3> index_;  // Registers of the claimed index; empty if unread.
};

// Returns the reason why the kernel cannot be claimed, or an empty string. Sets `reads`.
std::string FindReason(const Module& module, const CallGraph& calls, KernelScanner& scanner,
                       const Function& kernel, Reads& reads) {
  if (module.address_bits != 64) return "the module has addresses of 32 bits";
  const Result<std::vector<Finding>> findings = scanner.Scan(kernel);
  if (!findings) return std::string(findings.status().message());
  for (const Finding& finding : *findings) {
    if (std::ranges::find(kNotClaimed, finding.feature) != kNotClaimed.end()) {
      return Describe(finding);
    }
  }
  for (const Function* function : calls.Reachable(kernel)) {
    Reads own = FindReads(*function);
    if (!own.reason.empty()) return own.reason;
    if (function == &kernel) reads = std::move(own);
  }
  return {};
}

Variable DynamicShared(std::string name) {
  Variable variable;
  variable.linkage = ".extern";
  variable.space = StateSpace::kShared;
  // With alignment 1, this variable does not move the client's own.
  variable.alignment = 1;
  variable.type = "b8";
  variable.name = std::move(name);
  variable.extents = {0};
  return variable;
}

}  // namespace

Claims Claim(const Module& module) {
  Claims claims{.module = module, .kernels = {}};
  ModuleEditor editor(claims.module);
  const CallGraph calls(module);
  KernelScanner scanner(module, calls);
  const std::string shared = editor.HiddenName("shared");
  std::size_t reason_bytes_left = kReasonBytesMax;
  std::vector<Item> items;
  for (const Item& item : module.items) {
    items.push_back(item);
    const auto* kernel = std::get_if<Function>(&item);
    if (kernel == nullptr || !kernel->is_entry || !kernel->body) continue;
    PreemptibleKernel& claimed = claims.kernels.emplace_back();
    claimed.kernel = kernel->name;
    Reads reads;
    claimed.reason =
        KeptReason(FindReason(module, calls, scanner, *kernel, reads), reason_bytes_left);
    if (!claimed.reason.empty()) continue;
    Function form = *kernel;
    const Result<ModuleEditor::Parameter> parameter =
        editor.AppendParameter(form, sizeof(ClaimParameter), kClaimParameterAlignment);
    if (!parameter) {
      claimed.reason = parameter.status().message();
      continue;
    }
    form.name = editor.UniqueName("claimed_" + kernel->name);
    KernelClaim(editor, form, parameter->name, shared).Run(reads);
    claimed.claimed = form.name;
    claimed.parameter_offset = parameter->offset;
    items.emplace_back(std::move(form));
  }
  claims.module.items = std::move(items);
  const bool any = std::ranges::any_of(
      claims.kernels, [](const PreemptibleKernel& kernel) { return !kernel.claimed.empty(); });
  if (any) editor.AddVariable(DynamicShared(shared));
  return claims;
}

}  // namespace gpushared::ptx
