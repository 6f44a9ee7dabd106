// SPDX-License-Identifier: Apache-2.0
// The call graph of a module's functions.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_CALL_GRAPH_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_CALL_GRAPH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

struct Call {
  enum class Kind : std::uint8_t {
    kBody,      // A function with a body in this module.
    kMissing,   // A function that is declared only: a built-in, or one of another module.
    kIndirect,  // Through a register: whatever function it holds.
  };
  Kind kind = Kind::kBody;
  std::string name;        // As written; of a register when it is indirect.
  std::uint32_t line = 0;  // PTX line of the function's first such call.
};

// What a call instruction calls, as written; empty when it names nothing.
std::string_view CalleeName(const Instruction& call);

// Every .func with a body whose address something in the module takes, in source order: an
// initialiser that names it, or an instruction that does not call it. Borrows the module.
std::vector<const Function*> FunctionsWithAddressTaken(const Module& module);

// Immutable. Borrows the module, whose functions must stay where they are.
class CallGraph {
 public:
  explicit CallGraph(const Module& module);

  // Calls of a function's own body, each callee once, in order of first call.
  const std::vector<Call>& GetCalls(const Function& function) const;

  // The function of this name that has a body; null when there is none.
  const Function* FindBody(std::string_view name) const;

  // Every function with a body that may run once `function` was called: itself first,
  // then in order of discovery. An indirect call may reach every .func whose address is taken.
  std::vector<const Function*> Reachable(const Function& function) const;

 private:
  std::unordered_map<std::string_view, const Function*> declared_;  // With body if there is one.
  std::unordered_map<const Function*, std::vector<Call>> calls_;
  std::vector<const Function*> address_taken_;  // Empty when nothing calls indirectly.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_CALL_GRAPH_H_
