// SPDX-License-Identifier: Apache-2.0
// Values of a kernel and of the functions that it calls, as equations: each step computes a value
// from others, and a value written by several steps may be any of their results.

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

// Limit for the steps to follow the addresses of all kernels of one module; the access sets of the
// remaining kernels are unknown.
inline constexpr std::size_t kReachStepsMax = std::size_t{1} << 25;

// Thread-compatible.
class ReachProgram {
 public:
  using Node = std::uint32_t;  // Value of a register, a constant, or a word of call parameters.

  // How a step computes its result.
  enum class Rule : std::uint8_t {
    kCopy,  // Any of the sources.
    kMixed,
    kSum,  // Also used for clearing low bits: rounding down preserves the address.
    kDifference,
    kNegative,
    kReduced,          // Any combination of the sources, reduced to a 32-bit number or a product.
    kReducedNegative,  // Like kReduced, where a source may have been subtracted.
    kAsPointer,
    kLoaded,
    kForeign,  // Any combination of the sources with a foreign value.
  };
  struct Step {
    Rule rule = Rule::kCopy;
    AddressValue::Foreign foreign = AddressValue::Foreign::kOther;
    std::uint32_t line = 0;
    Node result = 0;
    std::vector<Node> sources;  // At least one.
  };

  // Adds the steps taken to `steps`, which other programs share.
  explicit ReachProgram(std::size_t& steps) : steps_(steps) {}

  Node NewNode(const AddressValue& value);
  Node size() const { return static_cast<Node>(values_.size()); }
  const AddressValue& operator[](Node node) const { return values_[node]; }
  void Add(Step step);

  // Returns the words of a .param variable in which a function passes parameters of a call.
  std::size_t GetArea(std::size_t function, const std::string& name);
  Node AreaWord(std::size_t area, std::uint64_t number);  // A word has 8 bytes.
  // Returns a node for unknown words of the area: each word may have this node's value.
  Node AnyWord(std::size_t area) const { return areas_[area].any; }
  void CopyArea(std::size_t from, std::size_t to);

  // Adds to the steps taken. Returns false beyond kReachStepsMax.
  bool Count(std::size_t steps) {
    steps_ += steps;
    return steps_ <= kReachStepsMax;
  }
  // Computes all values. Returns false beyond kReachStepsMax; all values are unknown then.
  bool Solve();

 private:
  struct Area {
    std::map<std::uint64_t, Node> words;  // Words passed to AreaWord, by number.
    Node any = 0;
    std::vector<std::size_t> from;  // Areas that are copied to this one.
  };

  AddressValue Compute(const Step& step) const;
  // Makes values that are read but never written foreign. Returns whether there were any.
  bool SettleUnwritten();

  std::size_t& steps_;
  std::vector<AddressValue> values_;
  std::vector<Step> program_;
  std::map<std::pair<std::size_t, std::string>, std::size_t> area_numbers_;
  std::vector<Area> areas_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_REACH_PROGRAM_H_
