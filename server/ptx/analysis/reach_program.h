// SPDX-License-Identifier: Apache-2.0
// The values of a kernel and of the functions that it calls, as equations: each step makes a value
// of others, and what several steps write is any of that.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_REACH_PROGRAM_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_REACH_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/ptx/analysis/address_value.h"

namespace gpushared::ptx {

// Steps that following the addresses of all kernels of one module may take; kernels that come later
// are unknown.
inline constexpr std::size_t kReachStepsMax = std::size_t{1} << 25;

// Thread-compatible.
class ReachProgram {
 public:
  using Node = std::uint32_t;  // A value: of a register, a constant, a word of call parameters.

  // How a step computes its result.
  enum class Rule : std::uint8_t {
    kCopy,  // Any of the sources.
    kMixed,
    kSum,  // Also one with bits cleared: rounded down, which stays the address that it is.
    kDifference,
    kNegative,
    kReduced,          // All of them, as a number of 32 bits or a product.
    kReducedNegative,  // The same, where a source may have been taken away.
    kAsPointer,
    kLoaded,
    kForeign,  // All of them, and something foreign.
  };
  struct Step {
    Rule rule = Rule::kCopy;
    AddressValue::Foreign foreign = AddressValue::Foreign::kOther;
    std::uint32_t line = 0;
    Node result = 0;
    std::vector<Node> sources;  // At least one.
  };

  // Counts its steps there, together with those of other programs.
  explicit ReachProgram(std::size_t& steps) : steps_(steps) {}

  Node NewNode(const AddressValue& value);
  Node size() const { return static_cast<Node>(values_.size()); }
  const AddressValue& operator[](Node node) const { return values_[node]; }
  void Add(Step step);

  // .param variables of functions: what calls hand over.
  std::size_t GetArea(std::size_t function, const std::string& name);
  Node AreaWord(std::size_t area, std::uint64_t number);             // A word has 8 bytes.
  Node AnyWord(std::size_t area) const { return areas_[area].any; }  // Each word may be this, too.
  void CopyArea(std::size_t from, std::size_t to);

  // False when the steps are used up.
  bool Count(std::size_t steps) {
    steps_ += steps;
    return steps_ <= kReachStepsMax;
  }
  // Finds all values. False when the steps are used up; nothing is known then.
  bool Solve();

 private:
  struct Area {
    std::map<std::uint64_t, Node> words;  // Those that something names.
    Node any = 0;
    std::vector<std::size_t> from;  // Areas that are copied into it.
  };

  AddressValue Compute(const Step& step) const;
  // What nobody writes, and some step reads, is foreign. Whether there was any.
  bool SettleUnwritten();

  std::size_t& steps_;
  std::vector<AddressValue> values_;
  std::vector<Step> program_;
  std::map<std::pair<std::size_t, std::string>, std::size_t> area_numbers_;
  std::vector<Area> areas_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_REACH_PROGRAM_H_
