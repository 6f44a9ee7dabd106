// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/reach_program.h"

#include <algorithm>

namespace gpushared::ptx {

ReachProgram::Node ReachProgram::NewNode(const AddressValue& value) {
  values_.push_back(value);
  return size() - 1;
}

void ReachProgram::Add(Step step) {
  if (Count(1 + step.sources.size())) program_.push_back(std::move(step));
}

std::size_t ReachProgram::GetArea(std::size_t function, const std::string& name) {
  const auto [found, is_new] = area_numbers_.emplace(std::pair(function, name), areas_.size());
  if (is_new) areas_.push_back({.words = {}, .any = NewNode({}), .from = {}});
  return found->second;
}

ReachProgram::Node ReachProgram::AreaWord(std::size_t area, std::uint64_t number) {
  const auto [found, is_new] = areas_[area].words.emplace(number, size());
  if (!is_new) return found->second;
  const Node node = NewNode({});
  Add({.rule = Rule::kCopy, .result = node, .sources = {areas_[area].any}});
  for (std::size_t i = 0; i < areas_[area].from.size() && Count(1); ++i) {
    Add({.rule = Rule::kCopy, .result = node, .sources = {AreaWord(areas_[area].from[i], number)}});
  }
  return node;
}

void ReachProgram::CopyArea(std::size_t from, std::size_t to) {
  areas_[to].from.push_back(from);
  Add({.rule = Rule::kCopy, .result = areas_[to].any, .sources = {areas_[from].any}});
  // The words are copied, because accessing a word of one area may add words to others.
  const std::map<std::uint64_t, Node> words = areas_[to].words;
  for (const auto& [number, node] : words) {
    if (!Count(1)) return;
    Add({.rule = Rule::kCopy, .result = node, .sources = {AreaWord(from, number)}});
  }
}

AddressValue ReachProgram::Compute(const Step& step) const {
  const AddressValue& first = values_[step.sources[0]];
  const AddressValue& last = values_[step.sources.back()];
  AddressValue value;
  switch (step.rule) {
    case Rule::kNegative:
      return AddressValue::Negative(first);
    case Rule::kAsPointer:
      return AddressValue::AsPointer(first);
    case Rule::kLoaded:
      return AddressValue::Loaded(first, step.line);
    case Rule::kSum:
      return AddressValue::Sum(first, last);
    case Rule::kDifference:
      return AddressValue::Difference(first, last);
    case Rule::kCopy:
      for (const Node source : step.sources) value.Join(values_[source]);
      return value;
    case Rule::kMixed:
    case Rule::kReduced:
    case Rule::kReducedNegative:
    case Rule::kForeign:
      break;
  }
  value = AddressValue::Number();
  for (const Node source : step.sources) value = AddressValue::Mixed(value, values_[source]);
  if (step.rule == Rule::kMixed) return value;
  if (step.rule == Rule::kForeign) {
    return AddressValue::Mixed(AddressValue::FromElsewhere(step.foreign, step.line), value);
  }
  if (step.rule == Rule::kReducedNegative) value = AddressValue::Negative(value);
  return AddressValue::Reduced(value);
}

bool ReachProgram::SettleUnwritten() {
  bool changed = false;
  for (const Step& step : program_) {
    if (step.rule == Rule::kCopy) continue;
    for (const Node source : step.sources) {
      if (!values_[source].IsNothing()) continue;
      values_[source] = AddressValue::FromElsewhere(AddressValue::Foreign::kOther, step.line);
      changed = true;
    }
  }
  return changed;
}

bool ReachProgram::Solve() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Step& step : program_) {
      if (!Count(step.sources.size())) return false;
      // A copy uses the sources that have values so far; other rules wait until all sources have
      // one.
      const bool lacks_any = std::ranges::any_of(
          step.sources, [this](Node source) { return values_[source].IsNothing(); });
      if (lacks_any && step.rule != Rule::kCopy) continue;
      changed |= values_[step.result].Join(Compute(step));
    }
    if (!changed) changed = SettleUnwritten();
  }
  return true;
}

}  // namespace gpushared::ptx
