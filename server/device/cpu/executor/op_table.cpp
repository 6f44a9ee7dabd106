// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/op_table.h"

#include <string>
#include <unordered_map>

namespace gpushared::device::executor {
namespace {

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using Table = std::unordered_map<std::string, Handler, Hash, std::equal_to<>>;

Table Build(Flavour flavour) {
  Table table;
  const OpSink sink = {[](void* out, const char* key, Handler handler) {
                         static_cast<Table*>(out)->insert_or_assign(key, handler);
                       },
                       &table};
#define GPUSHARED_ADD_BASELINE(name) baseline::Add##name##Ops(sink);
#define GPUSHARED_ADD_V3(name) v3::Add##name##Ops(sink);
  if (flavour == Flavour::kV3) {
    GPUSHARED_OP_FILES(GPUSHARED_ADD_V3)
  } else {
    GPUSHARED_OP_FILES(GPUSHARED_ADD_BASELINE)
  }
#undef GPUSHARED_ADD_BASELINE
#undef GPUSHARED_ADD_V3
  AddControlOps(sink);
  return table;
}

// Immutable after the first call, which is why it may be shared by every thread.
const Table& TableOf(Flavour flavour) {
  static const Table baseline_table = Build(Flavour::kBaseline);
  static const Table v3_table = BestFlavour() == Flavour::kV3 ? Build(Flavour::kV3) : Table();
  return flavour == Flavour::kV3 ? v3_table : baseline_table;
}

}  // namespace

Handler FindHandler(Flavour flavour, std::string_view key) {
  const Table& table = TableOf(flavour);
  const auto found = table.find(key);
  return found == table.end() ? nullptr : found->second;
}

void VisitHandlers(Flavour flavour,
                   const std::function<void(std::string_view key, Handler handler)>& visit) {
  for (const auto& [key, handler] : TableOf(flavour)) visit(key, handler);
}

}  // namespace gpushared::device::executor
