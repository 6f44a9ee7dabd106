// SPDX-License-Identifier: Apache-2.0
// Allowed modifiers of instructions that are decoded word by word. An unknown modifier might change
// the result, so the instruction is rejected. (Instructions that are looked up by their complete
// spelling need no list.)
#include <algorithm>
#include <array>
#include <string_view>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {
namespace {

struct KnownModifiers {
  std::string_view opcode;
  std::string_view words;  // Modifiers separated by spaces; "TYPE" stands for any type.
};

constexpr std::string_view kLoadStore =
    "TYPE weak volatile relaxed acquire release mmio cta cluster gpu sys const global local param "
    "param::entry param::func shared shared::cta ca cg cs lu cv wb wt nc v2 v4";
constexpr std::string_view kAtomic =
    "TYPE relaxed acquire release acq_rel cta cluster gpu sys global shared shared::cta add and or "
    "xor exch cas min max inc dec noftz v2 v4 v8";
constexpr std::string_view kSpaces = "to global shared shared::cta local const param u64 u32";
constexpr std::string_view kCompare =
    "TYPE eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz";
constexpr std::string_view kCarryForms = "TYPE cc lo hi";

constexpr std::array<KnownModifiers, 41> kKnown = {{
    {"ld", kLoadStore},
    {"ldu", kLoadStore},
    {"st", kLoadStore},
    {"atom", kAtomic},
    {"red", kAtomic},
    {"cvta", kSpaces},
    {"isspacep", kSpaces},
    {"setp", kCompare},
    {"set", kCompare},
    {"selp", "TYPE"},
    {"slct", "TYPE ftz"},
    {"mov", "TYPE pred v2 v4"},
    {"addc", kCarryForms},
    {"subc", kCarryForms},
    {"madc", kCarryForms},
    {"bar", "cta warp sync arrive red popc and or pred u32"},
    {"barrier", "cta sync arrive red aligned popc and or pred u32"},
    {"bra", "uni"},
    {"brx", "idx uni"},
    {"call", "uni"},
    {"ret", "uni"},
    {"exit", ""},
    {"trap", ""},
    {"brkpt", ""},
    {"nanosleep", "u32"},
    {"membar", "cta gl sys"},
    {"fence",
     "sc acq_rel acquire release cta cluster gpu sys mbarrier_init alias async global shared::cta "
     "shared::cluster"},
    {"mbarrier",
     "init inval arrive arrive_drop noComplete test_wait try_wait parity pending_count release "
     "acquire relaxed cta cluster shared shared::cta b64"},
    {"createpolicy", "fractional range cvt global b64"},
    {"discard", "global"},
    {"prefetch", "global local"},
    {"prefetchu", ""},
    {"applypriority", "global"},
    {"griddepcontrol", "launch_dependents wait"},
    {"pmevent", "mask"},
    {"setmaxnreg", "inc dec sync aligned u32"},
    {"and", "TYPE pred"},
    {"or", "TYPE pred"},
    {"xor", "TYPE pred"},
    {"not", "TYPE pred"},
    {"activemask", "b32"},
}};

bool IsListed(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// Returns whether the modifier is a cache or proxy hint. Hints need no action, because the
// executor's ordering and caching always satisfy them.
bool IsHint(std::string_view modifier) {
  return modifier == "L1" || modifier == "L2" || modifier.starts_with("L1::") ||
         modifier.starts_with("L2::") || modifier.starts_with("proxy");
}

}  // namespace

bool HasOnlyKnownModifiers(const ptx::Instruction& instruction) {
  // add, sub and mad are checked only if they have a carry.
  const bool carries = instruction.Has("cc");
  const auto known = std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownModifiers& entry) {
    return entry.opcode == instruction.opcode;
  });
  if (known == kKnown.end() && !carries) return true;
  const std::string_view words = known == kKnown.end() ? kCarryForms : known->words;
  return std::all_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                     [&](const std::string& modifier) {
                       const bool type = ptx::TypeBytes(modifier) != 0 && IsListed(words, "TYPE");
                       return type || IsListed(words, modifier) || IsHint(modifier);
                     });
}

}  // namespace gpushared::device::executor
