// SPDX-License-Identifier: Apache-2.0
// Control flow with dominators and the writes of each register, which determine how long a value
// that was computed from a register remains valid.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_VALUE_FLOW_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_VALUE_FLOW_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

struct ValueFlow {
  explicit ValueFlow(ControlFlow analysed);

  // Whether register `r` keeps its value after its only write, and every path to instruction `k`
  // includes that write. A value that `k` computes from `r` is then valid wherever `k` dominates.
  // Vector registers, which are written by component, are never stable.
  bool IsStable(std::uint32_t r, std::uint32_t k) const;

  // Calls enter and leave once for every block, both between enter and leave of its dominator. Also
  // visits unreachable blocks.
  void VisitBlocks(const std::function<void(std::uint32_t)>& enter,
                   const std::function<void(std::uint32_t)>& leave) const;

  ControlFlow flow;
  std::vector<std::uint32_t> dominators;  // Result of FindDominators; empty if it failed.
  // By instruction: registers that it writes, ascending.
  std::vector<std::vector<std::uint32_t>> written;
  std::vector<std::uint32_t> writes;      // By register: number of instructions that write it.
  std::vector<std::uint32_t> written_at;  // By register: the last instruction that writes it.

 private:
  struct Span {  // Position of a block in the dominator tree, nested in that of its dominator.
    std::uint32_t begin = 0, end = 0;
  };
  void FindSpans();

  std::vector<std::vector<std::uint32_t>> children_;
  std::vector<std::uint32_t> roots_;
  std::vector<Span> spans_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_VALUE_FLOW_H_
