// SPDX-License-Identifier: Apache-2.0
// Which functions of a module call which.

#ifndef GPUSHARED_SERVER_PTX_CALL_GRAPH_H_
#define GPUSHARED_SERVER_PTX_CALL_GRAPH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/ptx/module.h"

namespace gpushared::ptx {

struct Call {
  enum class Kind : std::uint8_t {
    kBody,      // A function with a body in this module.
    kMissing,   // A function that is declared only: a built-in, or one of another module.
    kIndirect,  // Through a register: whatever function it holds.
  };
  Kind kind = Kind::kBody;
  std::string name;        // As written; of a register when it is indirect.
  std::uint32_t line = 0;  // Of the first such call in the function.
};

// What a call instruction calls, as written; empty when it names nothing.
std::string_view CalleeName(const Instruction& call);

// Immutable. Borrows the module, whose functions must stay where they are.
class CallGraph {
 public:
  explicit CallGraph(const Module& module);

  // Calls of a function's own body, each callee once, in order of first call.
  const std::vector<Call>& CallsOf(const Function& function) const;

  // The function of this name that has a body; null when there is none.
  const Function* FindBody(std::string_view name) const;

  // Every function with a body that may run once `function` was called: itself first,
  // then in order of discovery. An indirect call may reach every .func of the module.
  std::vector<const Function*> Reachable(const Function& function) const;

 private:
  std::unordered_map<std::string_view, const Function*> declared_;  // With body if there is one.
  std::unordered_map<const Function*, std::vector<Call>> calls_;
  std::vector<const Function*> functions_;  // .func with a body, in source order.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_CALL_GRAPH_H_
