// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/verify.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "gpushared/limits.h"

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/matrix_shapes.h"
#include "server/device/cpu/executor/op_table.h"
#include "server/device/cpu/executor/surface_access.h"
#include "server/device/cpu/executor/warpgroup.h"

namespace gpushared::device::executor {
namespace {

// Alignment of rows for vector instructions.
constexpr std::uint32_t kRowAlignment = 64;
// Maximum number of rows in a fragment.
constexpr std::size_t kFragmentRowsMax = kWarpgroupColumnsMax / 2;
// Maximum number of elements of a matrix (ops/matrix_ops.cpp).
constexpr std::uint32_t kMatrixElementsMax = 32 * 16;
// Maximum number of slots of a function: each has a different offset or is empty.
constexpr std::size_t kSlotsMax = std::size_t{16} << 10;
// Maximum number of ops without a check for a kill. The decoder inserts a check before the
// instruction that follows kOpsPerCheck ops, and no instruction has more ops than that.
constexpr std::uint32_t kUncheckedOpsMax = 2 * kOpsPerCheck;

// The words of an operation's key, which are separated by dots.
using Spelled = std::vector<std::string>;

Spelled Words(std::string_view key) {
  Spelled words;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    words.emplace_back(key.substr(at, dot - at));
    at = dot + 1;
  }
  return words;
}

bool IsInside(std::uint64_t begin, std::uint64_t bytes, std::uint64_t end) {
  return bytes <= end && begin <= end - bytes;
}

// Validates one program. Reject returns false, so that a check is a single expression.
class Verifier {
 public:
  Verifier(const KernelInfo& info, const Code& code, const std::vector<std::uint16_t>& numbers,
           Flavour flavour)
      : info_(info), code_(code), numbers_(numbers), flavour_(flavour) {}

  Status Verify();

 private:
  static bool IsRow(const FunctionCode& function, std::uint32_t offset) {
    return offset % kRowAlignment == 0 && IsInside(offset, kWideRowBytes, function.frame_bytes);
  }
  static bool IsPredicate(const FunctionCode& function, std::uint32_t offset) {
    // Some operations read a predicate as a row, so it must be as far from the end as a row.
    return offset % 4 == 0 && IsInside(offset, 4, function.narrow_begin) &&
           IsInside(offset, kWideRowBytes, function.frame_bytes);
  }
  bool IsOp(std::uint32_t op) const { return op >= begin_ && op < end_; }
  bool Meets(const MicroOp& op) const {
    return op.reconvergence == kNoReconvergence || IsOp(op.reconvergence);
  }
  bool InArea(std::uint64_t offset, std::uint64_t bytes) const {
    return IsInside(offset, bytes, function_->area_bytes);
  }

  bool IsProgram() const;
  bool IsFunction(std::size_t index) const;
  bool HasPlaces(const MicroOp& op, const OpRule& rule) const;
  bool HasNumbers(const MicroOp& op, const OpEntry& entry);
  bool IsTable(std::int64_t number);
  bool IsCall(std::int64_t number, bool is_indirect);
  bool TakesWhatIsGiven(const CallSite& site) const;
  bool IsArea(const MicroOp& op) const;
  bool IsMatrix(const MicroOp& op, const OpEntry& entry);
  bool HasRows(const MatrixCall& call) const;
  bool IsMatrixOf(const MatrixCall& call, const OpEntry& entry) const;
  bool IsMma(const MatrixCall& call, const Spelled& words) const;
  bool IsWmma(const MatrixCall& call, const Spelled& words) const;
  static bool IsWarpgroup(const MatrixCall& call, const Spelled& words);
  bool ChecksOften();

  const KernelInfo& info_;
  const Code& code_;
  const std::vector<std::uint16_t>& numbers_;
  const Flavour flavour_;
  std::vector<const OpEntry*> entries_;  // Parallel to the ops.
  // The function being validated.
  const FunctionCode* function_ = nullptr;
  std::uint32_t index_ = 0, begin_ = 0, end_ = 0;
  // The function that first used a table, a call or the rows of a matrix, so that these are
  // validated once instead of for each op.
  static constexpr std::uint32_t kUnused = 0xffffffff;
  std::vector<std::uint32_t> table_users_, call_users_, matrix_users_;
  std::vector<bool> site_kinds_;  // Parallel to call_users_: whether the call is indirect.
  // Ops since the last check for a kill on the longest path to each op of the function.
  std::vector<std::uint32_t> since_check_;
};

bool Verifier::IsProgram() const {
  return !code_.functions.empty() && code_.functions.front().entry == 0 &&
         code_.sources.size() == code_.ops.size() && numbers_.size() == code_.ops.size() &&
         info_.parameter_bytes <= kParameterBytesMax &&
         info_.static_shared_bytes == code_.static_shared_bytes &&
         code_.static_shared_bytes <= kSharedBytesMax && info_.threads_per_block_max >= 1 &&
         info_.threads_per_block_max <= kThreadsPerBlockMax &&
         code_.local_bytes_per_thread <= kLocalBytesPerThreadMax &&
         code_.local_bytes_per_thread % 16 == 0 &&
         std::ranges::all_of(code_.callable, [&](const CallableFunction& callable) {
           return callable.function >= 1 && callable.function < code_.functions.size();
         });
}

bool Verifier::IsFunction(std::size_t index) const {
  const FunctionCode& f = code_.functions[index];
  const bool rows_follow = f.narrow_begin >= kFirstPredicate && f.narrow_begin <= f.wide_begin &&
                           f.wide_begin <= f.image_offset && f.narrow_begin % kRowAlignment == 0 &&
                           (f.wide_begin - f.narrow_begin) % kNarrowRowBytes == 0 &&
                           (f.image_offset - f.wide_begin) % kWideRowBytes == 0;
  const auto is_row = [&](const auto& row) { return IsRow(f, row.offset); };
  const auto is_slot = [&](const AreaSlot& slot) {
    return IsInside(slot.offset, slot.bytes, f.area_bytes);
  };
  // A call writes and copies rows without a check for a kill, so their number is limited to what
  // fits in the frame.
  const std::size_t rows_max = f.frame_bytes / kNarrowRowBytes;
  const auto is_short = [&](const std::vector<AreaSlot>& slots) {
    std::uint64_t bytes = 0;
    for (const AreaSlot& slot : slots) bytes += slot.bytes;
    return slots.size() <= kSlotsMax && bytes <= f.area_bytes;
  };
  return rows_follow && f.special_rows.size() <= rows_max && f.address_rows.size() <= rows_max &&
         f.scratch_rows.size() <= rows_max && is_short(f.arguments) && is_short(f.results) &&
         f.frame_bytes % 64 == 0 && f.frame_bytes <= kRegisterBytesPerWarpMax && IsRow(f, 0) &&
         IsInside(f.image_offset, f.image.size(), f.frame_bytes) &&
         IsInside(f.area_offset, std::uint64_t{f.area_bytes} * kLanes, f.frame_bytes) &&
         f.local_bytes <= kLocalBytesPerThreadMax && std::ranges::all_of(f.special_rows, is_row) &&
         std::ranges::all_of(f.address_rows, is_row) &&
         std::ranges::all_of(f.scratch_rows, is_row) && std::ranges::all_of(f.arguments, is_slot) &&
         std::ranges::all_of(f.results, is_slot);
}

bool Verifier::HasPlaces(const MicroOp& op, const OpRule& rule) const {
  const std::array places = {op.destination, op.a,       op.b,       op.c,
                             op.rows[0],     op.rows[1], op.rows[2], op.rows[3]};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::uint32_t bit = 1u << i;  // OpRule::Place
    if ((rule.free & bit) != 0 || IsRow(*function_, places[i])) continue;
    if ((rule.predicates & bit) == 0 || !IsPredicate(*function_, places[i])) return false;
  }
  return IsPredicate(*function_, op.guard & ~1u);
}

bool Verifier::IsTable(std::int64_t number) {
  if (!IsInside(static_cast<std::uint64_t>(number), 1, code_.branch_tables.size())) return false;
  const auto table = static_cast<std::size_t>(number);
  if (table_users_[table] != kUnused) return table_users_[table] == index_;
  table_users_[table] = index_;
  return std::ranges::all_of(code_.branch_tables[table],
                             [&](std::uint32_t op) { return IsOp(op); });
}

bool Verifier::IsCall(std::int64_t number, bool is_indirect) {
  if (!IsInside(static_cast<std::uint64_t>(number), 1, code_.call_sites.size())) return false;
  const auto index = static_cast<std::size_t>(number);
  const CallSite& site = code_.call_sites[index];
  if (call_users_[index] == kUnused) {
    call_users_[index] = index_;
    const auto fits = [&](const AreaSlot& slot) { return InArea(slot.offset, slot.bytes); };
    if (!std::ranges::all_of(site.arguments, fits) || !std::ranges::all_of(site.results, fits) ||
        site.target_list >= std::max<std::size_t>(code_.target_lists.size(), 1)) {
      return false;
    }
    site_kinds_[index] = is_indirect;
    // Sizes of an indirect call are compared when it is made.
    if (!is_indirect && !TakesWhatIsGiven(site)) return false;
  }
  return call_users_[index] == index_ && site_kinds_[index] == is_indirect &&
         (!is_indirect || !code_.target_lists.empty());
}

bool Verifier::TakesWhatIsGiven(const CallSite& site) const {
  // The kernel ends in an exit and cannot be called.
  if (site.function == 0 || site.function >= code_.functions.size()) return false;
  const FunctionCode& callee = code_.functions[site.function];
  const auto take = [](const std::vector<AreaSlot>& given, const std::vector<AreaSlot>& taken) {
    return std::ranges::equal(given, taken, std::ranges::less_equal(), &AreaSlot::bytes,
                              &AreaSlot::bytes);
  };
  return take(site.arguments, callee.arguments) && take(site.results, callee.results);
}

// Checks the fields that AreaAccess (ops/control_ops.cpp) reads.
bool Verifier::IsArea(const MicroOp& op) const {
  const std::uint32_t bytes = op.extra & 0xff, count = op.extra >> 8 & 0xff;
  const bool is_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  return is_size && count <= 4 && op.immediate >= 0 &&
         InArea(static_cast<std::uint64_t>(op.immediate), std::uint64_t{bytes} * count);
}

bool Verifier::IsMatrix(const MicroOp& op, const OpEntry& entry) {
  if (!IsInside(static_cast<std::uint64_t>(op.immediate), 1, code_.matrix_calls.size())) {
    return false;
  }
  const auto index = static_cast<std::size_t>(op.immediate);
  const MatrixCall& call = code_.matrix_calls[index];
  if (matrix_users_[index] == kUnused) {
    if (!HasRows(call)) return false;
    matrix_users_[index] = index_;
  }
  return matrix_users_[index] == index_ && IsMatrixOf(call, entry);
}

bool Verifier::HasRows(const MatrixCall& call) const {
  const auto is_row = [&](std::uint32_t row) { return IsRow(*function_, row); };
  return std::ranges::all_of(std::array{&call.a, &call.b, &call.c, &call.d}, [&](const auto* rows) {
    return rows->size() <= kFragmentRowsMax && std::ranges::all_of(*rows, is_row);
  });
}

bool Verifier::IsMatrixOf(const MatrixCall& call, const OpEntry& entry) const {
  switch (entry.rule.kind) {
    case OpRule::kMma:
      return IsMma(call, Words(entry.key));
    case OpRule::kWmma:
      return IsWmma(call, Words(entry.key));
    case OpRule::kWmmaMemory:
      return call.m >= 1 && call.m <= kMatrixElementsMax && call.n >= 1 &&
             call.n <= kMatrixElementsMax / call.m;
    case OpRule::kWarpgroup:
      return IsWarpgroup(call, Words(entry.key));
    case OpRule::kMatrixMove:
      return call.d.size() <= 4;
    default:
      return false;
  }
}

bool Verifier::IsMma(const MatrixCall& call, const Spelled& words) const {  // mma, d, a, b
  if (!HasMma(call, words[2])) return false;
  const FragmentCounts counts = MmaRegisters(call, words[2], words[1]);
  return call.a.size() == counts.a && call.b.size() == counts.b && call.c.size() == counts.c &&
         call.d.size() == counts.d;
}

bool Verifier::IsWmma(const MatrixCall& call, const Spelled& words) const {  // wmma, mma, d, a, c
  return HasWmma(call, words[3]) && call.a.size() == WmmaRegisters(call, 'a', words[3]) &&
         call.b.size() == WmmaRegisters(call, 'b', words[3]) &&
         call.c.size() == WmmaRegisters(call, 'c', words[4]) &&
         call.d.size() == WmmaRegisters(call, 'd', words[2]);
}

// Checks the shape and the rows that ops/wgmma_ops.cpp uses. A is in registers or in shared memory.
bool Verifier::IsWarpgroup(const MatrixCall& call, const Spelled& words) {
  // wgmma, d, a, b
  return call.n >= 8 && call.n <= kWarpgroupColumnsMax && call.n % 8 == 0 &&
         call.k == 8 * PackedIn(words[2]) && (call.a.empty() || call.a.size() == 4) &&
         call.d.size() == call.n / 2 / PackedIn(words[1]);
}

bool Verifier::HasNumbers(const MicroOp& op, const OpEntry& entry) {
  const OpRule& rule = entry.rule;
  const auto at = static_cast<std::uint64_t>(op.immediate);
  switch (rule.kind) {
    case OpRule::kRows:
    case OpRule::kEnd:
    case OpRule::kCheckKill:
      return true;
    case OpRule::kBranch:
      return IsOp(op.target);
    case OpRule::kSplit:
      return IsOp(op.target) && Meets(op);
    case OpRule::kIndexed:
      return IsTable(op.immediate) && Meets(op);
    case OpRule::kCall:
      return IsCall(op.immediate, false);
    case OpRule::kReturn:
      return index_ != 0;
    case OpRule::kArea:
      return IsArea(op);
    case OpRule::kAreaWords:
      for (std::size_t i = 0; i < rule.words.size(); ++i) {
        if (rule.words[i] != 0 && !InArea(op.rows[i], rule.words[i])) return false;
      }
      return op.immediate == 0;
    case OpRule::kIndirectCall:
      return IsCall(op.immediate, true);
    case OpRule::kGroup:
      return op.extra == rule.number;
    case OpRule::kParameter:
      return IsInside(at, rule.number, info_.parameter_bytes);
    case OpRule::kMma:
    case OpRule::kWmma:
    case OpRule::kWmmaMemory:
    case OpRule::kWarpgroup:
    case OpRule::kMatrixMove:
      return IsMatrix(op, entry);
    case OpRule::kAsyncCopy:
      return op.extra == 4 || op.extra == 8 || op.extra == 16;
    case OpRule::kFifthRow:
      return IsRow(*function_, op.extra);
    case OpRule::kSurface:
      return IsRow(*function_, op.extra) && SurfaceAccess::Of(op.immediate).IsPossible();
  }
  return false;
}

// Backward branches check for a kill, and so does every taken indexed branch. An op that is reached
// only through these has a count of zero. Control may fall through every op except a branch and the
// end, regardless of the op's guard, because code can overwrite the predicate that is always true.
bool Verifier::ChecksOften() {
  since_check_.assign(end_ - begin_, 0);
  const auto lead = [&](std::uint32_t to, std::uint32_t since) {
    std::uint32_t& longest = since_check_[to - begin_];
    longest = std::max(longest, since);
  };
  for (std::uint32_t i = begin_; i < end_; ++i) {
    const MicroOp& op = code_.ops[i];
    const OpRule::Kind kind = entries_[i]->rule.kind;
    const std::uint32_t since = kind == OpRule::kCheckKill ? 0 : since_check_[i - begin_] + 1;
    if (since > kUncheckedOpsMax) return false;
    const bool jumps = kind == OpRule::kBranch || kind == OpRule::kSplit;
    if (jumps && op.target > i) lead(op.target, since);
    if (kind != OpRule::kEnd && kind != OpRule::kBranch) lead(i + 1, since);
  }
  return true;
}

Status Verifier::Verify() {
  if (!IsProgram()) return WrongCode("information about its kernel");
  table_users_.assign(code_.branch_tables.size(), kUnused);
  matrix_users_.assign(code_.matrix_calls.size(), kUnused);
  call_users_.assign(code_.call_sites.size(), kUnused);
  site_kinds_.assign(code_.call_sites.size(), false);
  for (std::size_t i = 0; i < code_.ops.size(); ++i) {
    if (code_.sources[i].spelling >= code_.spellings.size()) return WrongCode("a spelling");
    entries_.push_back(OpOfNumber(flavour_, numbers_[i]));
    if (entries_[i] == nullptr) return WrongCode("the operation " + std::to_string(i));
  }
  for (std::size_t f = 0; f < code_.functions.size(); ++f) {
    if (!IsFunction(f)) return WrongCode("frame of function " + std::to_string(f));
    function_ = &code_.functions[f];
    index_ = static_cast<std::uint32_t>(f);
    begin_ = function_->entry;
    const bool is_last = f + 1 == code_.functions.size();
    const std::size_t end = is_last ? code_.ops.size() : code_.functions[f + 1].entry;
    if (end <= begin_ || end > code_.ops.size()) return WrongCode("order of its functions");
    end_ = static_cast<std::uint32_t>(end);
    if (entries_[end_ - 1]->rule.kind != OpRule::kEnd)
      return WrongCode("a function without an end");
    for (std::uint32_t i = begin_; i < end_; ++i) {
      const MicroOp& op = code_.ops[i];
      if (!HasPlaces(op, entries_[i]->rule) || !HasNumbers(op, *entries_[i])) {
        return WrongCode("op " + std::to_string(i) + " of " + std::to_string(code_.ops.size()));
      }
    }
    if (!ChecksOften()) {
      return WrongCode("function " + std::to_string(f) + " runs more than " +
                       std::to_string(kUncheckedOpsMax) + " ops without a check for a kill");
    }
  }
  return {};
}

}  // namespace

Status Verify(const KernelInfo& info, const Code& code, const std::vector<std::uint16_t>& numbers,
              Flavour flavour) {
  return Verifier(info, code, numbers, flavour).Verify();
}

Status WrongCode(const std::string& what) {
  return {StatusCode::kInvalidArgument, "decoded code is invalid: " + what};
}

}  // namespace gpushared::device::executor
