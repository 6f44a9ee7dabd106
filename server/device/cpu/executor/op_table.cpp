// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/op_table.h"

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace gpushared::device::executor {
namespace {

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
struct Op {
  Handler handler;
  OpRule rule;
};
using Table = std::unordered_map<std::string, Op, Hash, std::equal_to<>>;

Table Build(Flavour flavour) {
  Table table;
  const OpSink sink = {[](void* out, const char* key, Handler handler, const OpRule& rule) {
                         static_cast<Table*>(out)->insert_or_assign(key, Op{handler, rule});
                       },
                       &table};
#ifdef GPUSHARED_ONLY_FLAVOUR  // The build is for this machine only, so one flavour serves as both.
  static_cast<void>(flavour);
#define GPUSHARED_ADD_ONLY(name) GPUSHARED_ONLY_FLAVOUR::Add##name##Ops(sink);
  GPUSHARED_OP_FILES(GPUSHARED_ADD_ONLY)
#undef GPUSHARED_ADD_ONLY
#else
#define GPUSHARED_ADD_BASELINE(name) baseline::Add##name##Ops(sink);
#define GPUSHARED_ADD_V3(name) v3::Add##name##Ops(sink);
  if (flavour == Flavour::kV3) {
    GPUSHARED_OP_FILES(GPUSHARED_ADD_V3)
  } else {
    GPUSHARED_OP_FILES(GPUSHARED_ADD_BASELINE)
  }
#undef GPUSHARED_ADD_BASELINE
#undef GPUSHARED_ADD_V3
#endif
  AddControlOps(sink);
  return table;
}

#ifdef GPUSHARED_ONLY_FLAVOUR
constexpr bool kHasBoth = false;
#else
constexpr bool kHasBoth = true;
#endif

// Immutable after the first call, so all threads may share it.
const Table& GetTable(Flavour flavour) {
  static const Table kBaseline = Build(Flavour::kBaseline);
  static const Table kV3 = BestFlavour() == Flavour::kV3 ? Build(Flavour::kV3) : Table();
  return flavour == Flavour::kV3 ? kV3 : kBaseline;
}

struct Numbers {
  std::vector<OpEntry> entries;  // Sorted by key; its strings are those of a Table.
  std::unordered_map<Handler, std::uint32_t> by_handler;
};

Numbers NumberAll(const Table& table) {
  Numbers numbers;
  for (const auto& [key, op] : table) numbers.entries.push_back({key, op.handler, op.rule});
  std::ranges::sort(numbers.entries, {}, &OpEntry::key);
  for (std::uint32_t i = 0; i < numbers.entries.size(); ++i) {
    numbers.by_handler.emplace(numbers.entries[i].handler, i);
  }
  return numbers;
}

const Numbers& GetNumbers(Flavour flavour) {
  static const Numbers kBaseline = NumberAll(GetTable(Flavour::kBaseline));
  static const Numbers kV3 = NumberAll(GetTable(Flavour::kV3));
  return flavour == Flavour::kV3 ? kV3 : kBaseline;
}

}  // namespace

bool HasFlavour(Flavour flavour) { return kHasBoth || flavour == BestFlavour(); }

const OpEntry* OpOfNumber(Flavour flavour, std::uint64_t number) {
  const std::vector<OpEntry>& entries = GetNumbers(flavour).entries;
  return number < entries.size() ? &entries[number] : nullptr;
}

std::uint32_t GetNumber(Flavour flavour, Handler handler) {
  return GetNumbers(flavour).by_handler.at(handler);
}

Handler FindHandler(Flavour flavour, std::string_view key) {
  const Table& table = GetTable(flavour);
  const auto found = table.find(key);
  return found == table.end() ? nullptr : found->second.handler;
}

}  // namespace gpushared::device::executor
