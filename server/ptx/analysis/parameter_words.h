// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_PARAMETER_WORDS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_PARAMETER_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/ptx/text/module.h"
#include "server/ptx/analysis/address_value.h"

namespace gpushared::ptx {

// The parameters of a kernel, as values. Numbers their words as they are asked for.
//
// Thread-compatible; borrows the kernel.
class ParameterWords {
 public:
  explicit ParameterWords(const Function& kernel);

  bool Has(const std::string& parameter) const { return parameters_.contains(parameter); }
  // Eight bytes at an offset of a parameter. `line`: of who loads them.
  AddressValue GetWord(const std::string& parameter, std::int64_t offset, std::uint32_t line);
  AddressValue GetAddress(const std::string& parameter);
  // More were asked for than kAddressWordsMax: the values are not right.
  bool is_full() const { return is_full_; }

  // Byte offsets of the words, ascending; one more than `most` at least, where there are more.
  std::vector<std::uint32_t> GetOffsets(const AddressWords& words, std::size_t most) const;

 private:
  struct Parameter {
    std::uint64_t offset = 0;
    const Variable* variable = nullptr;
  };
  struct Word {  // Or all words of a parameter.
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  AddressWords GetNumber(std::uint64_t offset, std::uint64_t bytes);

  std::unordered_map<std::string, Parameter> parameters_;
  std::vector<Word> words_;
  bool is_full_ = false;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_PARAMETER_WORDS_H_
