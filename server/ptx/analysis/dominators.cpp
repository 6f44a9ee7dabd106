// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/dominators.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gpushared::ptx {
namespace {

using Edges = std::vector<std::vector<std::uint32_t>>;

// Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm". Fast for real graphs, but
// quadratic for adversarial ones, hence kDominatorStepsMax.
class Dominators {
 public:
  // Edges point away from the root; `reversed` has the same edges in the opposite direction.
  Dominators(std::uint32_t root, const Edges& edges, const Edges& reversed)
      : root_(root),
        edges_(edges),
        reversed_(reversed),
        rank_(edges.size()),
        dominator_(edges.size(), kNoBlock) {}

  // Returns the immediate dominator of each block: the root for the root itself, and kNoBlock for
  // unreachable blocks. Returns an empty list beyond the limit.
  std::vector<std::uint32_t> Run() {
    FindOrder();
    dominator_[root_] = root_;
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::uint32_t b : order_) {
        if (b == root_) continue;
        std::uint32_t best = kNoBlock;
        for (const std::uint32_t p : reversed_[b]) {
          if (++steps_ > kDominatorStepsMax) return {};
          if (dominator_[p] == kNoBlock) continue;
          best = best == kNoBlock ? p : Meet(p, best);
        }
        changed |= dominator_[b] != best;
        dominator_[b] = best;
      }
    }
    return std::move(dominator_);
  }

 private:
  // Returns the nearest common dominator. Stops early beyond the limit, because the result is not
  // used then.
  std::uint32_t Meet(std::uint32_t a, std::uint32_t b) {
    while (a != b && steps_ <= kDominatorStepsMax) {
      ++steps_;
      if (rank_[a] > rank_[b]) {
        a = dominator_[a];
      } else {
        b = dominator_[b];
      }
    }
    return a;
  }

  // Computes the reverse postorder of reachable blocks.
  void FindOrder() {
    std::vector<bool> entered(edges_.size());
    std::vector<std::pair<std::uint32_t, std::size_t>> stack = {{root_, 0}};
    entered[root_] = true;
    while (!stack.empty()) {
      auto& [b, next] = stack.back();
      if (next == edges_[b].size()) {
        order_.push_back(b);
        stack.pop_back();
        continue;
      }
      const std::uint32_t s = edges_[b][next++];
      if (entered[s]) continue;
      entered[s] = true;
      stack.emplace_back(s, 0);
    }
    std::reverse(order_.begin(), order_.end());
    for (std::uint32_t i = 0; i < order_.size(); ++i) rank_[order_[i]] = i;
  }

  const std::uint32_t root_;
  const Edges& edges_;
  const Edges& reversed_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> rank_;  // Position in order_.
  std::vector<std::uint32_t> dominator_;
  std::size_t steps_ = 0;
};

// A block that cannot reach the end is in an endless loop or leads only to such loops. Adds an edge
// to the end from the last of these blocks, and repeats this until every block reaches the end.
void LetEndlessLoopsEnd(std::uint32_t end, Edges* successors, Edges* predecessors) {
  std::vector<bool> seen(successors->size());
  const auto mark = [&](std::uint32_t start) {
    std::vector<std::uint32_t> open = {start};
    seen[start] = true;
    while (!open.empty()) {
      const std::uint32_t b = open.back();
      open.pop_back();
      for (const std::uint32_t p : (*predecessors)[b]) {
        if (!seen[p]) open.push_back(p);
        seen[p] = true;
      }
    }
  };
  mark(end);
  for (std::uint32_t b = end; b-- > 0;) {
    if (seen[b]) continue;
    (*successors)[b].push_back(end);
    (*predecessors)[end].push_back(b);
    mark(b);
  }
}

}  // namespace

std::vector<std::uint32_t> FindDominators(const std::vector<BasicBlock>& blocks) {
  if (blocks.empty()) return {};
  Edges successors(blocks.size()), predecessors(blocks.size());
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    for (const std::uint32_t s : blocks[b].successors) {
      if (s == kNoBlock) continue;
      successors[b].push_back(s);
      predecessors[s].push_back(b);
    }
  }
  std::vector<std::uint32_t> found = Dominators(0, successors, predecessors).Run();
  if (!found.empty()) found[0] = kNoBlock;
  return found;
}

bool FindPostDominators(std::vector<BasicBlock>& blocks) {
  // The end of the function is an additional block.
  const auto end = static_cast<std::uint32_t>(blocks.size());
  Edges successors(blocks.size() + 1), predecessors(blocks.size() + 1);
  const auto add = [&](std::uint32_t from, std::uint32_t to) {
    successors[from].push_back(to);
    predecessors[to].push_back(from);
  };
  for (std::uint32_t b = 0; b < end; ++b) {
    for (const std::uint32_t s : blocks[b].successors) add(b, s == kNoBlock ? end : s);
    const bool leaves = blocks[b].end == BasicBlock::End::kLeave ||
                        blocks[b].end == BasicBlock::End::kConditionalLeave;
    if (leaves) add(b, end);
  }
  LetEndlessLoopsEnd(end, &successors, &predecessors);
  const std::vector<std::uint32_t> found = Dominators(end, predecessors, successors).Run();
  if (found.empty()) return false;
  for (std::uint32_t b = 0; b < end; ++b) {
    blocks[b].immediate_post_dominator = found[b] == end ? kNoBlock : found[b];
  }
  return true;
}

}  // namespace gpushared::ptx
