// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence_code.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/ptx/passes/kernel_words.h"

namespace gpushared::ptx {
namespace {

// Number of masks from which keeping the base in a register makes a function faster.
constexpr std::uint32_t kMasksForRegister = 32;
// lop3: (a & b) | c.
constexpr std::int64_t kAndOr = 0xea;

// Maximum number of additions between the array's address and the register.
constexpr int kSumsMax = 8;

}  // namespace

// ---- local variables

void FenceLocals::Merge(ModuleEditor& names, FunctionEditor& editor, std::uint32_t alignment) {
  std::uint64_t bytes = 0;
  std::vector<const Variable*> locals;
  for (const Variable& variable : flow_.flow.variables) {
    if (variable.space != StateSpace::kLocal || variable.linkage == ".extern") continue;
    const std::uint32_t own = std::max<std::uint32_t>(variable.NaturalAlignment(), 1);
    bytes = (bytes + own - 1) / own * own;
    places_[variable.name] = {.offset = static_cast<std::int64_t>(bytes),
                              .bytes = variable.Bytes()};
    bytes += variable.Bytes();
    alignment = std::max(alignment, own);
    locals.push_back(&variable);
  }
  if (locals.empty() || bytes == 0) return;
  const bool serves = locals.size() == 1 && locals[0]->name.find('@') == std::string::npos &&
                      locals[0]->NaturalAlignment() >= alignment;
  if (serves) {
    array_ = *locals[0];
    return;
  }
  Variable merged;
  merged.space = StateSpace::kLocal;
  merged.alignment = alignment;
  merged.type = "b8";
  merged.name = names.UniqueName("local");
  merged.extents = {(bytes + alignment - 1) / alignment * alignment};
  array_ = merged;
  merges_ = true;
  editor.InsertAtEntry(std::move(merged));
}

const FenceLocals::Place* FenceLocals::Find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> FenceLocals::OffsetIn(std::uint32_t r, std::uint32_t k) const {
  return OffsetIn(r, k, kSumsMax);
}

std::optional<std::int64_t> FenceLocals::OffsetIn(std::uint32_t r, std::uint32_t k,
                                                  int chain) const {
  if (chain == 0 || !flow_.IsStable(r, k)) return std::nullopt;
  const std::uint32_t at = flow_.written_at[r];
  const Instruction& from = flow_.flow.instructions[at];
  const bool moves = from.opcode == "mov" && from.operands.size() == 2;
  const bool adds = from.opcode == "add" && from.operands.size() == 3 &&
                    from.operands[2].kind == Operand::Kind::kInteger;
  const bool is_64 = !from.modifiers.empty() && TypeBytes(from.modifiers.back()) == 8;
  if ((!moves && !adds) || from.guard || !is_64 || from.operands[1].kind != Operand::Kind::kName) {
    return std::nullopt;
  }
  const Operand& source = from.operands[1];
  std::optional<std::int64_t> start;
  if (const Place* local = Find(source.text); local != nullptr) {
    start = local->offset + source.offset;
  } else if (const std::uint32_t other = flow_.flow.FindRegister(source.text);
             other != kNoRegister && source.offset == 0) {
    start = OffsetIn(other, at, chain - 1);
  }
  if (!start) return std::nullopt;
  const std::int64_t sum = *start + (adds ? from.operands[2].integer : 0);
  constexpr std::int64_t kFarthest = std::int64_t{1} << 31;
  return sum > -kFarthest && sum < kFarthest ? std::optional(sum) : std::nullopt;
}

// ---- addresses

void FenceCode::Add(std::size_t at, std::string_view spelling, std::vector<Operand> operands) {
  editor_.InsertBefore(at, Make(spelling, std::move(operands)));
}

std::string FenceCode::Sum(std::size_t at, const std::string& base, std::int64_t addend) {
  if (addend == 0) return base;
  std::string sum = NewAddress();
  Add(at, "add.s64", {Name(sum), Name(base), Integer(addend)});
  return sum;
}

std::string FenceCode::Narrow(std::size_t at, const std::string& wide) {
  std::string word = NewWord();
  Add(at, "cvt.u32.u64", {Name(word), Name(wide)});
  return word;
}

std::string FenceCode::Aligned(std::size_t at, std::string word, std::uint32_t alignment) {
  if (alignment > 1) {
    Add(at, "and.b32", {Name(word), Name(word), Integer(-std::int64_t{alignment})});
  }
  return word;
}

std::string FenceCode::Mask(std::size_t at, const std::string& address, std::uint32_t alignment) {
  if (base_.empty()) base_ = NewWord();
  ++masks_;
  const std::string low = NewWord();
  std::string high = base_, masked = NewAddress();
  if (facts_.mask_high == 0) {
    // The old high word is unused, so the compiler drops its computation.
    Add(at, "cvt.u32.u64", {Name(low), Name(address)});
  } else {
    high = NewWord();
    Add(at, "mov.b64", {Vector({Name(low), Name(high)}), Name(address)});
    // A single instruction, because ptxas does not always combine two if both operands are uniform.
    Add(at, "lop3.b32",
        {Name(high), Name(high), Integer(facts_.mask_high), Name(base_), Integer(kAndOr)});
  }
  Aligned(at, low, alignment);
  Add(at, "mov.b64", {Name(masked), Vector({Name(low), Name(high)})});
  if (facts_.contains) {
    masked = BelowLimit(at, masked);
  }
  return masked;
}

std::string FenceCode::BelowLimit(std::size_t at, const std::string& masked) {
  std::string limited = NewAddress();
  Add(at, "min.u64", {Name(limited), Name(masked), Name(Limit())});
  if (!facts_.variables_escape) return limited;
  // The module's variables are elsewhere in the range, possibly beyond the limit.
  const std::string place = NewAddress(), is_in = editor_.NewRegister("pred");
  std::string selected = NewAddress();
  Add(at, "sub.u64", {Name(place), Name(masked), Name(Variables())});
  Add(at, "setp.lt.u64",
      {Name(is_in), Name(place), Integer(static_cast<std::int64_t>(facts_.variables_bytes))});
  Add(at, "selp.b64", {Name(selected), Name(masked), Name(limited), Name(is_in)});
  return selected;
}

std::string FenceCode::MaskOutsideWindows(std::size_t at, const std::string& address,
                                          const MemoryAccess& access, std::uint32_t alignment) {
  const std::uint32_t bytes = access.bytes;
  std::string fenced = Mask(at, address, alignment);
  const auto select = [&](const char* space, const std::string& inside) {
    const std::string in_window = editor_.NewRegister("pred");
    std::string selected = NewAddress();
    Add(at, std::string("isspacep.") + space, {Name(in_window), Name(address)});
    Add(at, "selp.b64", {Name(selected), Name(inside), Name(fenced), Name(in_window)});
    fenced = std::move(selected);
  };
  const auto clamped_in = [&](const std::string& space, auto clamp) {
    const std::string wide = NewAddress(), clamped = NewAddress();
    std::string generic = NewAddress();
    Add(at, "cvta.to." + space + ".u64", {Name(wide), Name(address)});
    Add(at, "cvt.u64.u32", {Name(clamped), Name(clamp(Narrow(at, wide)))});
    Add(at, "cvta." + space + ".u64", {Name(generic), Name(clamped)});
    return generic;
  };
  if (facts_.has_generic_shared && access.takes_shared) {
    select("shared", !facts_.contains ? address : clamped_in("shared", [&](const auto& word) {
             return ClampShared(at, word, 0, bytes, alignment);
           }));
  }
  const bool local = facts_.has_generic_local && access.takes_local && local_ != nullptr;
  if (local && bytes <= local_->Bytes()) {
    select("local", clamped_in("local", [&](const auto& word) {
             return ClampLocal(at, word, 0, bytes, alignment);
           }));
  }
  if (access.takes_parameter && bytes <= parameter_bytes_) {
    const std::string place = NewAddress(), generic = NewAddress();
    Add(at, "cvta.to.param.u64", {Name(place), Name(address)});
    Add(at, "cvta.param.u64",
        {Name(generic),
         Name(ClampParameter(at, first_parameter_, parameter_bytes_, place, 0, bytes, alignment))});
    select("param", generic);
  }
  return fenced;
}

std::string FenceCode::ClampLocal(std::size_t at, const std::string& word, std::int64_t immediate,
                                  std::uint32_t bytes, std::uint32_t alignment) {
  if (local_base_.empty()) local_base_ = NewWord();
  std::string place = NewWord();
  Add(at, "sub.u32", {Name(place), Name(word), Name(local_base_)});
  if (immediate != 0) Add(at, "add.u32", {Name(place), Name(place), Integer(immediate)});
  Add(at, "min.u32",
      {Name(place), Name(place), Integer(static_cast<std::int64_t>(local_->Bytes() - bytes))});
  Aligned(at, place, alignment);
  Add(at, "add.u32", {Name(place), Name(place), Name(local_base_)});
  return place;
}

std::string FenceCode::ClampShared(std::size_t at, const std::string& word, std::int64_t immediate,
                                   std::uint32_t bytes, std::uint32_t alignment) {
  std::string& last = shared_last_[bytes];
  if (last.empty()) last = NewWord();
  std::string place = NewWord(), from = word;
  if (immediate != 0) {
    Add(at, "add.u32", {Name(place), Name(word), Integer(immediate)});
    from = place;
  }
  Add(at, "min.u32", {Name(place), Name(from), Name(last)});
  if (is_kernel_) {
    if (shared_begin_.empty()) shared_begin_ = NewWord();
    Add(at, "max.u32", {Name(place), Name(place), Name(shared_begin_)});
  }
  return Aligned(at, place, alignment);
}

std::string FenceCode::ClampParameter(std::size_t at, const std::string& first, std::uint64_t size,
                                      const std::string& address, std::int64_t immediate,
                                      std::uint32_t bytes, std::uint32_t alignment) {
  const std::string start = NewAddress();
  std::string place = NewAddress();
  Add(at, "mov.b64", {Name(start), Name(first)});
  Add(at, "sub.u64", {Name(place), Name(address), Name(start)});
  if (immediate != 0) Add(at, "add.u64", {Name(place), Name(place), Integer(immediate)});
  Add(at, "min.u64", {Name(place), Name(place), Integer(static_cast<std::int64_t>(size - bytes))});
  if (alignment > 1) {
    Add(at, "and.b64", {Name(place), Name(place), Integer(-std::int64_t{alignment})});
  }
  Add(at, "add.u64", {Name(place), Name(place), Name(start)});
  return place;
}

const std::string& FenceCode::Limit() {
  if (limit_.empty()) limit_ = NewAddress();
  return limit_;
}

const std::string& FenceCode::Variables() {
  if (variables_.empty()) variables_ = NewAddress();
  return variables_;
}

const std::string& FenceCode::SharedEnd() {
  if (shared_end_.empty()) shared_end_ = NewWord();
  return shared_end_;
}

void FenceCode::LoadConstant(const std::string& name, std::string_view type, std::size_t member) {
  if (name.empty()) return;
  editor_.InsertAtEntry(Make("ld.const." + std::string(type),
                             {Name(name), Address(facts_.constant, GetOffset(member))}));
}

// Instead of keeping a constant in a register, ptxas reloads it or moves it from a uniform
// register, which takes one or two instructions for every mask. It does keep values that appear to
// depend on the thread, so this code makes the base appear to depend on the thread.
void FenceCode::LoadBase() {
  if (base_.empty()) return;
  LoadConstant(base_, "u32", offsetof(FenceConstant, base_high));
  if (masks_ < kMasksForRegister) return;
  const std::string thread = NewWord(), never = NewWord(), other = editor_.NewRegister("pred");
  LoadConstant(never, "u32", offsetof(FenceConstant, never));
  editor_.InsertAtEntry(Make("mov.u32", {Name(thread), Name("%tid.x")}));
  editor_.InsertAtEntry(Make("setp.gt.u32", {Name(other), Name(thread), Name(never)}));
  editor_.InsertAtEntry(Make("selp.b32", {Name(base_), Integer(0), Name(base_), Name(other)}));
}

void FenceCode::Finish() {
  const auto enter = [this](std::string_view spelling, std::vector<Operand> operands) {
    editor_.InsertAtEntry(Make(spelling, std::move(operands)));
  };
  LoadBase();
  LoadConstant(variables_, "u64", offsetof(FenceConstant, variables));
  if (!limit_.empty()) {
    const std::string control = NewAddress();
    LoadConstant(control, "u64", offsetof(FenceConstant, control));
    // Volatile, because the server may change the limit while kernels run.
    enter("ld.volatile.global.u64",
          {Name(limit_), Address(control, GetOffset(offsetof(ContainControl, limit)))});
  }
  if (!shared_last_.empty() || !shared_end_.empty()) {
    const std::string start = NewWord(), end = SharedEnd();
    enter("mov.u32", {Name(start), Name(facts_.dynamic_shared)});
    enter("mov.u32", {Name(end), Name("%dynamic_smem_size")});
    enter("add.u32", {Name(end), Name(end), Name(start)});
    for (const auto& [bytes, last] : shared_last_) {
      enter("sub.u32", {Name(last), Name(end), Integer(bytes)});
    }
  }
  if (local_base_.empty()) return;
  const std::string wide = NewAddress();
  enter("mov.u64", {Name(wide), Name(local_->name)});
  enter("cvt.u32.u64", {Name(local_base_), Name(wide)});
}

}  // namespace gpushared::ptx
