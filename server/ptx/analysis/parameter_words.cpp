// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/parameter_words.h"

#include <algorithm>

#include "common/ptx/text/editor.h"

namespace gpushared::ptx {
namespace {

constexpr std::uint64_t kParameterWord = 8;

std::uint64_t RoundedUp(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

// ".param .u64 .ptr .global .align 4 p"
bool IsGlobalPointer(const Variable& variable) {
  const std::string& attributes = variable.attributes;
  const auto has = [&](const char* word) { return attributes.find(word) != std::string::npos; };
  return has(".ptr") && !has(".shared") && !has(".local") && !has(".const");
}

}  // namespace

ParameterWords::ParameterWords(const Function& kernel) {
  for (const ParameterPlace& place : PlaceParameters(kernel)) {
    parameters_[place.variable->name] = {.offset = place.offset, .variable = place.variable};
  }
}

AddressWords ParameterWords::GetNumber(std::uint64_t offset, std::uint64_t bytes) {
  AddressWords words;
  const auto known = std::ranges::find_if(
      words_, [&](const Word& word) { return word.offset == offset && word.bytes == bytes; });
  if (known == words_.end() && words_.size() == kAddressWordsMax) {
    is_full_ = true;
    return words;
  }
  words.set(static_cast<std::size_t>(known - words_.begin()));
  if (known == words_.end()) words_.push_back({.offset = offset, .bytes = bytes});
  return words;
}

AddressValue ParameterWords::GetWord(const std::string& parameter, std::int64_t offset,
                                     std::uint32_t line) {
  const Variable& variable = *parameters_.at(parameter).variable;
  const auto inside = static_cast<std::uint64_t>(offset);
  const std::uint64_t place = parameters_.at(parameter).offset + inside;
  const bool is_inside = offset >= 0 && variable.Bytes() >= kParameterWord &&
                         inside <= variable.Bytes() - kParameterWord;
  if (!is_inside || place % kParameterWord != 0) {
    return AddressValue::FromElsewhere(AddressValue::Foreign::kOther, line);
  }
  AddressValue value = AddressValue::Number();
  value.others = GetNumber(place, kParameterWord);
  return IsGlobalPointer(variable) ? AddressValue::AsPointer(value) : value;
}

AddressValue ParameterWords::GetAddress(const std::string& parameter) {
  const auto& [offset, variable] = parameters_.at(parameter);
  AddressValue value;
  value.kind = AddressValue::Kind::kPointer;
  value.parameters = GetNumber(offset, variable->Bytes());
  return value;
}

std::vector<std::uint32_t> ParameterWords::GetOffsets(const AddressWords& words,
                                                      std::size_t most) const {
  std::vector<std::uint32_t> offsets;
  for (std::size_t number = 0; number < words_.size(); ++number) {
    if (!words[number]) continue;
    // The words of one parameter are distinct, so `most` + 1 of them suffice.
    const std::uint64_t begin = RoundedUp(words_[number].offset, kParameterWord);
    const std::uint64_t end =
        std::min(words_[number].offset + words_[number].bytes, begin + (most + 1) * kParameterWord);
    for (std::uint64_t at = begin; at + kParameterWord <= end; at += kParameterWord) {
      offsets.push_back(static_cast<std::uint32_t>(at));
    }
  }
  std::ranges::sort(offsets);
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  return offsets;
}

}  // namespace gpushared::ptx
