// SPDX-License-Identifier: Apache-2.0
// How much a thread may do before it looks whether it is to stop: not in time, which no text tells,
// but in work, of which an instruction does the more the longer it may take.

#ifndef GPUSHARED_SERVER_PTX_PASSES_CONTAIN_WORK_H_
#define GPUSHARED_SERVER_PTX_PASSES_CONTAIN_WORK_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/call_graph.h"

namespace gpushared::ptx {

// A sleep is no longer than this, whatever it asks for: PTX lets it end early.
inline constexpr std::uint32_t kSleepNsMax = 32768;

// Of one instruction, 1 for those that are quickest; calls without what they call. Chosen for a GPU
// full of threads that all go different ways: there 65,536 are less than a second (an estimate).
std::uint32_t GetWork(const Instruction& instruction);

// A function with loops that has done more than this in them since it last looked looks before it
// returns. So its caller can count it as this and what it does outside of loops.
inline constexpr std::uint32_t kReturnWork = 8192;

// The most work that functions do after their last look, which is their caller's. Borrows the call
// graph and its module.
class FunctionWork {
 public:
  explicit FunctionWork(const CallGraph& calls) : calls_(calls) {}

  // Whether it has loops of its own. How often they turn no text tells.
  bool HasLoops(const Function& function) { return Find(function).has_loops; }
  // Of an instruction; of a call with the callee's.
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
