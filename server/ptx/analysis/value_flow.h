// SPDX-License-Identifier: Apache-2.0
// Control flow with dominators, and where each register is written: what tells how long a value
// that was computed of a register stays the right one.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_VALUE_FLOW_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_VALUE_FLOW_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

struct ValueFlow {
  explicit ValueFlow(ControlFlow analysed);

  // Whether register `r` has one value from its only write on, and every path to instruction `k`
  // has passed that write. Then a value that `k` computes from it holds wherever `k` dominates.
  // Vector registers, written component by component, never are stable.
  bool IsStable(std::uint32_t r, std::uint32_t k) const;

  // Calls enter(block) for every block, each between enter and leave of the block that dominates
  // it. Blocks that nothing leads to are visited, too.
  void VisitBlocks(const std::function<void(std::uint32_t)>& enter,
                   const std::function<void(std::uint32_t)>& leave) const;

  ControlFlow flow;
  std::vector<std::uint32_t> dominators;            // FindDominators; empty when it failed.
  std::vector<std::vector<std::uint32_t>> written;  // By instruction: what it writes, ascending.
  std::vector<std::uint32_t> writes;                // Of each register: instructions that do.
  std::vector<std::uint32_t> written_at;            // Of each register: the last such instruction.

 private:
  struct Span {  // Of a block in the tree of dominators: within that of its dominator.
    std::uint32_t begin = 0, end = 0;
  };
  void FindSpans();

  std::vector<std::vector<std::uint32_t>> children_;
  std::vector<std::uint32_t> roots_;
  std::vector<Span> spans_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_VALUE_FLOW_H_
