// SPDX-License-Identifier: Apache-2.0
// Poll budget: static estimate of the work between two stop checks, in abstract units, because the
// text does not determine the time. Slower instructions cost more.

#ifndef GPUSHARED_SERVER_PTX_PASSES_CONTAIN_WORK_H_
#define GPUSHARED_SERVER_PTX_PASSES_CONTAIN_WORK_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/call_graph.h"

namespace gpushared::ptx {

// Maximum duration of a sleep; longer sleeps are shortened to it. PTX permits that, because any
// sleep may end early.
inline constexpr std::uint32_t kSleepNsMax = 32768;

// Returns the cost of one instruction; 1 for the fastest. The cost of a call excludes its callee.
// Costs assume a GPU full of divergent threads, which takes less than a second for a cost of 65,536
// (an estimate).
std::uint32_t GetWork(const Instruction& instruction);

// A function with loops checks for a stop before it returns if its loops have done at least this
// work since the last check. Therefore its caller counts this amount, plus the function's work
// outside of loops.
inline constexpr std::uint32_t kReturnWork = 8192;

// Maximum work of functions after their last check, which is attributed to their caller. Borrows
// the call graph and its module.
class FunctionWork {
 public:
  explicit FunctionWork(const CallGraph& calls) : calls_(calls) {}

  // Whether the function itself has loops, whose number of iterations the text does not determine.
  bool HasLoops(const Function& function) { return Find(function).has_loops; }
  // Work of an instruction; for a call including the callee.
  std::uint32_t Of(const Instruction& instruction);

 private:
  struct Known {
    bool has_loops = false;
    std::uint32_t work = 0;
  };
  const Known& Find(const Function& function);
  Known Measure(const Function& function) const;

  const CallGraph& calls_;
  std::unordered_map<const Function*, Known> known_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PASSES_CONTAIN_WORK_H_
