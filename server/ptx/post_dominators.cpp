// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/post_dominators.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushared::ptx {
namespace {

// Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm", on the reversed graph
// whose root is the end of the function. Made to be fast on real graphs, it is quadratic
// on some made to hurt it: hence the limit.
class PostDominators {
 public:
  explicit PostDominators(const std::vector<BasicBlock>& blocks)
      : root_(static_cast<std::uint32_t>(blocks.size())),
        successors_(blocks.size()),
        predecessors_(blocks.size() + 1),
        rank_(blocks.size() + 1),
        dominator_(blocks.size() + 1, kNoBlock) {
    for (std::uint32_t b = 0; b < root_; ++b) {
      for (const std::uint32_t s : blocks[b].successors) AddEdge(b, s == kNoBlock ? root_ : s);
      const bool leaves = blocks[b].end == BasicBlock::End::kLeave ||
                          blocks[b].end == BasicBlock::End::kConditionalLeave;
      if (leaves) AddEdge(b, root_);
    }
    LetEndlessLoopsEnd();
    FindOrder();
  }

  bool Run() {
    dominator_[root_] = root_;
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::uint32_t b : order_) {
        if (b == root_) continue;
        std::uint32_t best = kNoBlock;
        for (const std::uint32_t s : successors_[b]) {
          if (++steps_ > kPostDominatorStepsMax) return false;
          if (dominator_[s] == kNoBlock) continue;
          best = best == kNoBlock ? s : Meet(s, best);
        }
        changed |= dominator_[b] != best;
        dominator_[b] = best;
      }
    }
    return true;
  }

  std::uint32_t Of(std::uint32_t b) const {
    return dominator_[b] == root_ ? kNoBlock : dominator_[b];
  }

 private:
  void AddEdge(std::uint32_t from, std::uint32_t to) {
    successors_[from].push_back(to);
    predecessors_[to].push_back(from);
  }

  // The nearest block that post-dominates both. Ends wherever it is once the limit is
  // reached, since the result is not used then.
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

  // Blocks that cannot reach the end lie in endless loops, or lead only to them; the last
  // of each gets an edge to the root.
  void LetEndlessLoopsEnd() {
    std::vector<bool> seen(root_ + 1);
    const auto mark = [&](std::uint32_t start) {
      std::vector<std::uint32_t> open = {start};
      seen[start] = true;
      while (!open.empty()) {
        const std::uint32_t b = open.back();
        open.pop_back();
        for (const std::uint32_t p : predecessors_[b]) {
          if (!seen[p]) open.push_back(p);
          seen[p] = true;
        }
      }
    };
    mark(root_);
    for (std::uint32_t b = root_; b-- > 0;) {
      if (seen[b]) continue;
      AddEdge(b, root_);
      mark(b);
    }
  }

  // Reverse postorder of the reversed graph; every block is in it by now.
  void FindOrder() {
    std::vector<bool> entered(root_ + 1);
    std::vector<std::pair<std::uint32_t, std::size_t>> stack = {{root_, 0}};
    entered[root_] = true;
    while (!stack.empty()) {
      auto& [b, next] = stack.back();
      if (next == predecessors_[b].size()) {
        order_.push_back(b);
        stack.pop_back();
        continue;
      }
      const std::uint32_t p = predecessors_[b][next++];
      if (entered[p]) continue;
      entered[p] = true;
      stack.emplace_back(p, 0);
    }
    std::reverse(order_.begin(), order_.end());
    for (std::uint32_t i = 0; i < order_.size(); ++i) rank_[order_[i]] = i;
  }

  std::uint32_t root_;
  std::vector<std::vector<std::uint32_t>> successors_;
  std::vector<std::vector<std::uint32_t>> predecessors_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> rank_;  // Position in order_.
  std::vector<std::uint32_t> dominator_;
  std::size_t steps_ = 0;
};

}  // namespace

bool FindPostDominators(std::vector<BasicBlock>& blocks) {
  PostDominators post_dominators(blocks);
  if (!post_dominators.Run()) return false;
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    blocks[b].immediate_post_dominator = post_dominators.Of(b);
  }
  return true;
}

}  // namespace gpushared::ptx
