// SPDX-License-Identifier: Apache-2.0
#include "server/executor/verify.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "server/executor/block_executor.h"
#include "server/executor/matrix_shapes.h"
#include "server/executor/op_table.h"
#include "server/executor/surface_access.h"
#include "server/executor/warpgroup.h"

namespace gpushared::device::executor {
namespace {

// Rows begin at multiples of this, so that vector instructions may load them.
constexpr std::uint32_t kRowAlignment = 64;
// Fragments of one operation have no more rows.
constexpr std::size_t kFragmentRowsMax = kWarpgroupColumnsMax / 2;
// Elements of a matrix (ops/matrix_ops.cpp).
constexpr std::uint32_t kMatrixElementsMax = 32 * 16;
constexpr std::uint32_t kParameterBytesMax = 32764;
// Of a function: each begins somewhere else, or has no bytes.
constexpr std::size_t kSlotsMax = std::size_t{16} << 10;
// Ops that may run in a row without a look for a kill. The decoder puts a look in front of the
// instruction behind kOpsPerLook ops, and an instruction is of fewer ops than that.
constexpr std::uint32_t kUnlookedOpsMax = 2 * kOpsPerLook;

enum class Kind : std::uint8_t {
  kPlain,  // Rows, and numbers that any value does for.
  kEnd,
  kLook,
  kBranch,
  kSplit,  // A branch that some lanes take.
  kIndexed,
  kCall,
  kReturn,
  kArea,
  kAreaWords,  // Places in the parameter area of what it reads and writes.
  kIndirectCall,
  kGroup,  // Lanes that name the same members act together: `extra` says what that reads.
  kParameter,
  kMma,
  kWmma,
  kWmmaMemory,
  kWarpgroup,
  kMatrixMove,
  kAsyncCopy,
  kFifthRow,  // `extra` is a row, too.
  kSurface,   // The same; the immediate says what it moves.
};

// The fields of an op that name a place in the frame.
enum Field : std::uint8_t { kDestination, kA, kB, kC, kRow0, kRow1, kRow2, kRow3, kFields };
constexpr std::uint32_t Bit(Field field) { return 1u << field; }
constexpr std::uint32_t kAllRows = Bit(kRow0) | Bit(kRow1) | Bit(kRow2) | Bit(kRow3);

using Spelled = std::vector<std::string>;  // The words of a key.

struct OpRule {
  Kind kind = Kind::kPlain;
  std::uint32_t predicates = 0;  // Bits of fields that may name a predicate instead of a row.
  std::uint32_t free = 0;        // Bits of fields that name no place.
  std::uint32_t bytes = 0;       // kParameter: what it reads.
  std::uint32_t extra = 0;       // kGroup: what MicroOp::extra is.
  std::array<std::uint32_t, 4> words = {};  // kAreaWords: bytes at each of MicroOp::rows.
  Spelled spelled;                          // Names of matrix products.
};

bool Begins(std::string_view key, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return key.starts_with(word); });
}

Spelled Words(std::string_view key) {
  Spelled words;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    words.emplace_back(key.substr(at, dot - at));
    at = dot + 1;
  }
  return words;
}

// "ld.param.v2.u32" reads 8 bytes.
std::uint32_t ParameterBytes(std::string_view key) {
  const Spelled words = Words(key);
  const std::uint32_t bits = static_cast<std::uint32_t>(std::stoul(words.back().substr(1)));
  const std::uint32_t count = words[2] == "v2" ? 2 : words[2] == "v4" ? 4 : 1;
  return bits / 8 * count;
}

std::uint32_t PredicatesOf(std::string_view key) {
  if (key.ends_with(".pred")) return Bit(kDestination) | Bit(kA) | Bit(kB);
  if (Begins(key, {"vote.ballot"})) return Bit(kA);
  if (Begins(key, {"vote."})) return Bit(kDestination) | Bit(kA);
  if (Begins(key, {"mbarrier.test_wait"})) return Bit(kDestination);
  if (Begins(key, {"setp.", "isspacep.", "testp."})) return Bit(kDestination) | Bit(kRow0);
  if (Begins(key, {"shfl.", "match.", "elect"})) return Bit(kRow0);
  if (Begins(key, {"bar.red.popc"})) return Bit(kC);
  if (Begins(key, {"bar.red."})) return Bit(kDestination) | Bit(kC);
  if (Begins(key, {"selp.", "wgmma."})) return Bit(kC);
  return 0;
}

// Functions of the device, and what they read and write of their caller's area.
struct AreaOp {
  std::string_view key;
  std::array<std::uint32_t, 4> bytes;
};
constexpr std::array<AreaOp, 5> kAreaOps = {{{"vprintf", {8, 8, 4}},
                                             {"vprintf.unread", {8, 8}},
                                             {"__assertfail", {8, 8, 4, 8}},
                                             {"malloc", {8, 8}},
                                             {"free", {8}}}};

std::uint32_t GroupExtra(std::string_view key) {
  if (key == "vote.ballot") return kReadsPredicate;
  if (key.starts_with("vote.")) return kReadsPredicate | kWritesPredicate;
  if (key.starts_with("match.")) return key.ends_with("64") ? kReadsWide : 0;
  if (key.starts_with("shfl.")) return kReadsThree;
  return key == "bar.warp" ? kWritesNothing : 0;
}

OpRule RuleOf(std::string_view key) {
  OpRule rule;
  rule.predicates = PredicatesOf(key);
  if (key == "end") rule.kind = Kind::kEnd;
  if (key == "look") rule.kind = Kind::kLook;
  if (key == "bra") rule.kind = Kind::kBranch;
  if (key == "bra.if") rule.kind = Kind::kSplit;
  if (key == "brx.idx") rule.kind = Kind::kIndexed;
  if (key == "call") rule.kind = Kind::kCall;
  if (key == "return") rule.kind = Kind::kReturn;
  if (key == "ld.area" || key == "st.area") rule.kind = Kind::kArea;
  if (key == "call.indirect") rule.kind = Kind::kIndirectCall;
  for (const AreaOp& op : kAreaOps) {
    if (key != op.key) continue;
    rule.kind = Kind::kAreaWords;
    rule.free = kAllRows;
    rule.words = op.bytes;
  }
  if (Begins(key, {"shfl.", "vote.", "match.", "redux.", "elect", "bar.warp"})) {
    rule.kind = Kind::kGroup;
    rule.extra = GroupExtra(key);
  }
  if (key.starts_with("ld.param.") && !key.starts_with("ld.param.a64")) {
    rule.kind = Kind::kParameter;
    rule.bytes = ParameterBytes(key);
  }
  if (key.starts_with("mma.")) rule.kind = Kind::kMma;
  if (key.starts_with("wmma.mma.")) rule.kind = Kind::kWmma;
  if (key.starts_with("wgmma.")) rule.kind = Kind::kWarpgroup;
  if (Begins(key, {"mma.", "wmma.mma.", "wgmma."})) rule.spelled = Words(key);
  // Their c is an offset of an address.
  if (Begins(key, {"wmma.load.", "wmma.store."})) {
    rule.kind = Kind::kWmmaMemory;
    rule.free = Bit(kC);
  }
  if (Begins(key, {"ldmatrix.", "stmatrix."})) {
    rule.kind = Kind::kMatrixMove;
    rule.free = Bit(kC);
  }
  if (key.starts_with("cp.async.")) {
    rule.kind = Kind::kAsyncCopy;
    rule.free = Bit(kRow0);
  }
  const bool is_b128_atomic = key.starts_with("atom.") && key.ends_with(".b128");
  if (Begins(key, {"bfi.", "tex."}) || is_b128_atomic) rule.kind = Kind::kFifthRow;
  if (Begins(key, {"suld.", "sust."})) rule.kind = Kind::kSurface;
  return rule;
}

// By number.
const std::vector<OpRule>& RulesOf(Flavour flavour) {
  const auto make = [](Flavour of) {
    std::vector<OpRule> rules;
    while (const OpEntry* entry = OpOfNumber(of, rules.size())) rules.push_back(RuleOf(entry->key));
    return rules;
  };
  static const std::vector<OpRule> kBaseline = make(Flavour::kBaseline);
  static const std::vector<OpRule> kV3 = make(Flavour::kV3);
  return flavour == Flavour::kV3 ? kV3 : kBaseline;
}

bool IsInside(std::uint64_t begin, std::uint64_t bytes, std::uint64_t end) {
  return bytes <= end && begin <= end - bytes;
}

// Checks one program. Refuse returns false, so that checks read as one sentence.
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
    // Some readers take it for a row, so it lies as far from the end as one.
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
  bool HasNumbers(const MicroOp& op, const OpRule& rule);
  bool IsTable(std::int64_t number);
  bool IsCall(std::int64_t number, bool is_indirect);
  bool TakesWhatIsGiven(const CallSite& site) const;
  bool IsArea(const MicroOp& op) const;
  bool IsMatrix(const MicroOp& op, const OpRule& rule);
  bool HasRows(const MatrixCall& call) const;
  bool IsMatrixOf(const MatrixCall& call, const OpRule& rule) const;
  bool IsMma(const MatrixCall& call, const Spelled& words) const;
  bool IsWmma(const MatrixCall& call, const Spelled& words) const;
  static bool IsWarpgroup(const MatrixCall& call, const Spelled& words);
  bool LooksOften(const std::vector<OpRule>& rules);

  const KernelInfo& info_;
  const Code& code_;
  const std::vector<std::uint16_t>& numbers_;
  const Flavour flavour_;
  // The function being checked.
  const FunctionCode* function_ = nullptr;
  std::uint32_t index_ = 0, begin_ = 0, end_ = 0;
  // Which function has used a table, a call or the rows of a matrix before: nothing is checked for
  // each op that uses it.
  static constexpr std::uint32_t kNobody = 0xffffffff;
  std::vector<std::uint32_t> table_users_, call_users_, matrix_users_;
  std::vector<bool> site_kinds_;  // Parallel to call_users_: of an indirect call.
  // Ops since the last look on the longest way to each op of the function.
  std::vector<std::uint32_t> since_look_;
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
  // They are written and copied for each call, in which nobody looks for a kill.
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
  const std::array<std::uint32_t, kFields> places = {
      op.destination, op.a, op.b, op.c, op.rows[0], op.rows[1], op.rows[2], op.rows[3]};
  for (std::uint32_t field = 0; field < kFields; ++field) {
    const std::uint32_t bit = 1u << field;
    if ((rule.free & bit) != 0 || IsRow(*function_, places[field])) continue;
    if ((rule.predicates & bit) == 0 || !IsPredicate(*function_, places[field])) return false;
  }
  return IsPredicate(*function_, op.guard & ~1u);
}

bool Verifier::IsTable(std::int64_t number) {
  if (!IsInside(static_cast<std::uint64_t>(number), 1, code_.branch_tables.size())) return false;
  const auto table = static_cast<std::size_t>(number);
  if (table_users_[table] != kNobody) return table_users_[table] == index_;
  table_users_[table] = index_;
  return std::ranges::all_of(code_.branch_tables[table],
                             [&](std::uint32_t op) { return IsOp(op); });
}

bool Verifier::IsCall(std::int64_t number, bool is_indirect) {
  if (!IsInside(static_cast<std::uint64_t>(number), 1, code_.call_sites.size())) return false;
  const auto index = static_cast<std::size_t>(number);
  const CallSite& site = code_.call_sites[index];
  if (call_users_[index] == kNobody) {
    call_users_[index] = index_;
    const auto fits = [&](const AreaSlot& slot) { return InArea(slot.offset, slot.bytes); };
    if (!std::ranges::all_of(site.arguments, fits) || !std::ranges::all_of(site.results, fits) ||
        site.target_list >= std::max<std::size_t>(code_.target_lists.size(), 1)) {
      return false;
    }
    site_kinds_[index] = is_indirect;
    // An indirect call compares the sizes when it is made.
    if (!is_indirect && !TakesWhatIsGiven(site)) return false;
  }
  return call_users_[index] == index_ && site_kinds_[index] == is_indirect &&
         (!is_indirect || !code_.target_lists.empty());
}

bool Verifier::TakesWhatIsGiven(const CallSite& site) const {
  // The kernel itself ends in an exit and is nobody's callee.
  if (site.function == 0 || site.function >= code_.functions.size()) return false;
  const FunctionCode& callee = code_.functions[site.function];
  const auto take = [](const std::vector<AreaSlot>& given, const std::vector<AreaSlot>& taken) {
    return std::ranges::equal(given, taken, std::ranges::less_equal(), &AreaSlot::bytes,
                              &AreaSlot::bytes);
  };
  return take(site.arguments, callee.arguments) && take(site.results, callee.results);
}

// As ops/control_ops.cpp has it.
bool Verifier::IsArea(const MicroOp& op) const {
  const std::uint32_t bytes = op.extra & 0xff, count = op.extra >> 8 & 0xff;
  const bool is_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  return is_size && count <= 4 && op.immediate >= 0 &&
         InArea(static_cast<std::uint64_t>(op.immediate), std::uint64_t{bytes} * count);
}

bool Verifier::IsMatrix(const MicroOp& op, const OpRule& rule) {
  if (!IsInside(static_cast<std::uint64_t>(op.immediate), 1, code_.matrix_calls.size())) {
    return false;
  }
  const auto index = static_cast<std::size_t>(op.immediate);
  const MatrixCall& call = code_.matrix_calls[index];
  if (matrix_users_[index] == kNobody) {
    if (!HasRows(call)) return false;
    matrix_users_[index] = index_;
  }
  return matrix_users_[index] == index_ && IsMatrixOf(call, rule);
}

bool Verifier::HasRows(const MatrixCall& call) const {
  const auto is_row = [&](std::uint32_t row) { return IsRow(*function_, row); };
  return std::ranges::all_of(std::array{&call.a, &call.b, &call.c, &call.d}, [&](const auto* rows) {
    return rows->size() <= kFragmentRowsMax && std::ranges::all_of(*rows, is_row);
  });
}

bool Verifier::IsMatrixOf(const MatrixCall& call, const OpRule& rule) const {
  switch (rule.kind) {
    case Kind::kMma:
      return IsMma(call, rule.spelled);
    case Kind::kWmma:
      return IsWmma(call, rule.spelled);
    case Kind::kWmmaMemory:
      return call.m >= 1 && call.m <= kMatrixElementsMax && call.n >= 1 &&
             call.n <= kMatrixElementsMax / call.m;
    case Kind::kWarpgroup:
      return IsWarpgroup(call, rule.spelled);
    case Kind::kMatrixMove:
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

// As ops/wgmma_ops.cpp has it: A is in registers, or in shared memory.
bool Verifier::IsWarpgroup(const MatrixCall& call, const Spelled& words) {
  // wgmma, d, a, b
  return call.n >= 8 && call.n <= kWarpgroupColumnsMax && call.n % 8 == 0 &&
         call.k == 8 * PackedIn(words[2]) && (call.a.empty() || call.a.size() == 4) &&
         call.d.size() == call.n / 2 / PackedIn(words[1]);
}

bool Verifier::HasNumbers(const MicroOp& op, const OpRule& rule) {
  const auto at = static_cast<std::uint64_t>(op.immediate);
  switch (rule.kind) {
    case Kind::kPlain:
    case Kind::kEnd:
    case Kind::kLook:
      return true;
    case Kind::kBranch:
      return IsOp(op.target);
    case Kind::kSplit:
      return IsOp(op.target) && Meets(op);
    case Kind::kIndexed:
      return IsTable(op.immediate) && Meets(op);
    case Kind::kCall:
      return IsCall(op.immediate, false);
    case Kind::kReturn:
      return index_ != 0;
    case Kind::kArea:
      return IsArea(op);
    case Kind::kAreaWords:
      for (std::size_t i = 0; i < rule.words.size(); ++i) {
        if (rule.words[i] != 0 && !InArea(op.rows[i], rule.words[i])) return false;
      }
      return op.immediate == 0;
    case Kind::kIndirectCall:
      return IsCall(op.immediate, true);
    case Kind::kGroup:
      return op.extra == rule.extra;
    case Kind::kParameter:
      return IsInside(at, rule.bytes, info_.parameter_bytes);
    case Kind::kMma:
    case Kind::kWmma:
    case Kind::kWmmaMemory:
    case Kind::kWarpgroup:
    case Kind::kMatrixMove:
      return IsMatrix(op, rule);
    case Kind::kAsyncCopy:
      return op.extra == 4 || op.extra == 8 || op.extra == 16;
    case Kind::kFifthRow:
      return IsRow(*function_, op.extra);
    case Kind::kSurface:
      return IsRow(*function_, op.extra) && SurfaceAccess::Of(op.immediate).IsPossible();
  }
  return false;
}

// Ways back look by themselves, and so does an indexed branch that is taken, wherever it leads. An
// op to which nothing but those leads begins with none. Others than a branch and the end may be
// passed whatever guards them: code can overwrite the predicate that is always true.
bool Verifier::LooksOften(const std::vector<OpRule>& rules) {
  since_look_.assign(end_ - begin_, 0);
  const auto lead = [&](std::uint32_t to, std::uint32_t since) {
    std::uint32_t& longest = since_look_[to - begin_];
    longest = std::max(longest, since);
  };
  for (std::uint32_t i = begin_; i < end_; ++i) {
    const MicroOp& op = code_.ops[i];
    const Kind kind = rules[numbers_[i]].kind;
    const std::uint32_t since = kind == Kind::kLook ? 0 : since_look_[i - begin_] + 1;
    if (since > kUnlookedOpsMax) return false;
    const bool jumps = kind == Kind::kBranch || kind == Kind::kSplit;
    if (jumps && op.target > i) lead(op.target, since);
    if (kind != Kind::kEnd && kind != Kind::kBranch) lead(i + 1, since);
  }
  return true;
}

Status Verifier::Verify() {
  if (!IsProgram()) return WrongCode("what it says of its kernel");
  table_users_.assign(code_.branch_tables.size(), kNobody);
  matrix_users_.assign(code_.matrix_calls.size(), kNobody);
  call_users_.assign(code_.call_sites.size(), kNobody);
  site_kinds_.assign(code_.call_sites.size(), false);
  const std::vector<OpRule>& rules = RulesOf(flavour_);
  for (std::size_t i = 0; i < code_.ops.size(); ++i) {
    if (code_.sources[i].spelling >= code_.spellings.size()) return WrongCode("a spelling");
    if (numbers_[i] >= rules.size()) return WrongCode("the operation " + std::to_string(i));
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
    if (rules[numbers_[end_ - 1]].kind != Kind::kEnd) return WrongCode("a function without an end");
    for (std::uint32_t i = begin_; i < end_; ++i) {
      const OpRule& rule = rules[numbers_[i]];
      const MicroOp& op = code_.ops[i];
      if (!HasPlaces(op, rule) || !HasNumbers(op, rule)) {
        return WrongCode("op " + std::to_string(i) + " of " + std::to_string(code_.ops.size()));
      }
    }
    if (!LooksOften(rules)) {
      return WrongCode("function " + std::to_string(f) + " runs more than " +
                       std::to_string(kUnlookedOpsMax) + " ops without a look for a kill");
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
  return {StatusCode::kInvalidArgument, "decoded code is wrong: " + what};
}

}  // namespace gpushared::device::executor
