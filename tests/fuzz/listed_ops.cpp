// SPDX-License-Identifier: Apache-2.0
// Stands in for the executor's operations where code is decoded and verified, and never runs: they
// are gcc's C++ (_Float16), and a fuzzer needs clang. Every operation that was asked for is there.
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "server/executor/op_table.h"

namespace gpushared::device::executor {
namespace {

struct Listed {
  std::map<std::string, std::uint32_t, std::less<>> numbers;
  std::deque<OpEntry> entries;
};

Listed& List() {
  static Listed list;
  return list;
}

// Names an operation and is not called.
Handler NameOf(std::uint32_t number) {
  return reinterpret_cast<Handler>(std::uintptr_t{16} * (number + 1));
}

}  // namespace

Handler FindHandler(Flavour /*flavour*/, std::string_view key) {
  Listed& list = List();
  const auto number = static_cast<std::uint32_t>(list.entries.size());
  const auto [found, is_new] = list.numbers.try_emplace(std::string(key), number);
  if (is_new) list.entries.push_back({found->first, NameOf(number)});
  return NameOf(found->second);
}

const OpEntry* OpOfNumber(Flavour /*flavour*/, std::uint64_t number) {
  return number < List().entries.size() ? &List().entries[number] : nullptr;
}

std::uint32_t NumberOf(Flavour /*flavour*/, Handler handler) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handler) / 16 - 1);
}

}  // namespace gpushared::device::executor
