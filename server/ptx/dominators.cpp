// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/dominators.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gpushared::ptx {
namespace {

// Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm". As for post-dominators, graphs
// exist that make it slow: hence the limit.
class Dominators {
 public:
  explicit Dominators(const std::vector<BasicBlock>& blocks)
      : blocks_(blocks),
        predecessors_(blocks.size()),
        rank_(blocks.size()),
        dominator_(blocks.size(), kNoBlock) {
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      for (const std::uint32_t s : blocks[b].successors) {
        if (s != kNoBlock) predecessors_[s].push_back(b);
      }
    }
    FindOrder();
  }

  std::vector<std::uint32_t> Run() {
    if (blocks_.empty()) return {};
    dominator_[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::uint32_t b : order_) {
        if (b == 0) continue;
        std::uint32_t best = kNoBlock;
        for (const std::uint32_t p : predecessors_[b]) {
          if (++steps_ > kPostDominatorStepsMax) return {};
          if (dominator_[p] == kNoBlock) continue;
          best = best == kNoBlock ? p : Meet(p, best);
        }
        changed |= dominator_[b] != best;
        dominator_[b] = best;
      }
    }
    dominator_[0] = kNoBlock;
    return std::move(dominator_);
  }

 private:
  // The last block that dominates both. Ends anywhere once the limit is reached.
  std::uint32_t Meet(std::uint32_t a, std::uint32_t b) {
    while (a != b && steps_ <= kPostDominatorStepsMax) {
      ++steps_;
      if (rank_[a] > rank_[b]) {
        a = dominator_[a];
      } else {
        b = dominator_[b];
      }
    }
    return a;
  }

  // Reverse postorder of what can be reached.
  void FindOrder() {
    if (blocks_.empty()) return;
    std::vector<bool> entered(blocks_.size());
    std::vector<std::pair<std::uint32_t, std::size_t>> stack = {{0, 0}};
    entered[0] = true;
    while (!stack.empty()) {
      auto& [b, next] = stack.back();
      if (next == blocks_[b].successors.size()) {
        order_.push_back(b);
        stack.pop_back();
        continue;
      }
      const std::uint32_t s = blocks_[b].successors[next++];
      if (s == kNoBlock || entered[s]) continue;
      entered[s] = true;
      stack.emplace_back(s, 0);
    }
    std::reverse(order_.begin(), order_.end());
    for (std::uint32_t i = 0; i < order_.size(); ++i) rank_[order_[i]] = i;
  }

  const std::vector<BasicBlock>& blocks_;
  std::vector<std::vector<std::uint32_t>> predecessors_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> rank_;  // Position in order_.
  std::vector<std::uint32_t> dominator_;
  std::size_t steps_ = 0;
};

}  // namespace

std::vector<std::uint32_t> FindDominators(const std::vector<BasicBlock>& blocks) {
  return Dominators(blocks).Run();
}

}  // namespace gpushared::ptx
