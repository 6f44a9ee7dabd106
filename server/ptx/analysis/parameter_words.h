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

// Parameters of a kernel as values. Numbers their words on first use.
//
// Thread-compatible; borrows the kernel.
class ParameterWords {
 public:
  explicit ParameterWords(const Function& kernel);

  bool Has(const std::string& parameter) const { return parameters_.contains(parameter); }
  // Returns eight bytes at an offset of a parameter. `line`: position of the load.
  AddressValue GetWord(const std::string& parameter, std::int64_t offset, std::uint32_t line);
  AddressValue GetAddress(const std::string& parameter);
  // Whether more than kAddressWordsMax words were used, so that the values are invalid.
  bool is_full() const { return is_full_; }

  // Returns the byte offsets of the words, ascending. If there are more than `most` words, some may
  // be omitted, but at least `most` + 1 are returned.
  std::vector<std::uint32_t> GetOffsets(const AddressWords& words, std::size_t most) const;

 private:
  struct Parameter {
    std::uint64_t offset = 0;
    const Variable* variable = nullptr;
  };
  struct Word {  // A word, or all words of a parameter.
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
