// SPDX-License-Identifier: Apache-2.0
// Call graph of a module's functions.

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
    kMissing,   // A function without a body: a built-in, or a function of another module.
    kIndirect,  // Through a register: any function that it may hold.
  };
  Kind kind = Kind::kBody;
  std::string name;        // As written; for an indirect call, the register.
  std::uint32_t line = 0;  // PTX line of the first such call in the caller.
};

// Returns the callee of a call instruction as written; empty if there is none.
std::string_view CalleeName(const Instruction& call);

// Returns every .func that has a body and whose address is taken, in source order. The address is
// taken if an initializer, or an instruction other than a call of the .func, names the .func.
// Borrows the module.
std::vector<const Function*> FunctionsWithAddressTaken(const Module& module);

// Immutable. Borrows the module, whose functions must not be moved.
class CallGraph {
 public:
  explicit CallGraph(const Module& module);

  // Returns the calls in a function's own body, each callee once, in order of the first call.
  const std::vector<Call>& GetCalls(const Function& function) const;

  // Returns the function of this name with a body, or null.
  const Function* FindBody(std::string_view name) const;

  // Returns every function with a body that may run when `function` is called: itself first, then
  // in order of discovery. An indirect call may reach every .func whose address is taken.
  std::vector<const Function*> Reachable(const Function& function) const;

 private:
  // Functions by name; the definition if there is one, otherwise a declaration.
  std::unordered_map<std::string_view, const Function*> declared_;
  std::unordered_map<const Function*, std::vector<Call>> calls_;
  std::vector<const Function*> address_taken_;  // Empty without indirect calls.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_CALL_GRAPH_H_
