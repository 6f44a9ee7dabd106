// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_LINED_JSON_H_
#define GPUSHARED_SCHEDULER_SIM_LINED_JSON_H_

#include <cstddef>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::simulation {

// A value of a JSON file with the line on which it ends. Files are untrusted input: each accessor
// checks for the value that it expects, and throws Rejected with the line otherwise.
//
// Value; immutable once read.
class LinedJson {
 public:
  struct Rejected : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  // Reads a file of at most `bytes_max`. Errors name the path and the line.
  static Result<LinedJson> Read(const std::string& path, std::size_t bytes_max);
  static Result<LinedJson> Parse(const std::string& text);

  // Returns the member of an object; null if it has no such member.
  const LinedJson* Find(const std::string& name) const;
  const LinedJson& At(const std::string& name) const;
  // Rejects any other member, because otherwise a misspelt member would be ignored silently.
  void AllowOnly(const std::vector<std::string>& names) const;
  // Returns the items of a list of `least` to `most` items.
  const std::vector<LinedJson>& Items(std::size_t least, std::size_t most) const;
  double Number(double least, double most) const;
  // Returns a number without a fraction.
  std::uint64_t Count(std::uint64_t least, std::uint64_t most) const;
  std::string Text(std::size_t bytes_max) const;
  [[noreturn]] void Reject(const std::string& expected) const;

 private:
  friend class LinedJsonReader;
  enum class Kind { kNull, kBoolean, kNumber, kText, kList, kObject };

  Kind kind_ = Kind::kNull;
  std::size_t line_ = 1;
  std::string name_;  // Name of this member, or of the member that contains this value.
  double number_ = 0;
  std::string text_;
  std::vector<LinedJson> items_;
  std::map<std::string, LinedJson> members_;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_LINED_JSON_H_
