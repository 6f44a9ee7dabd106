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

// A value of a JSON file that knows on which line it ends. Files are input: each question says what
// it expects, and throws Rejected with that line where it finds something else.
//
// Value; immutable once it was read.
class LinedJson {
 public:
  struct Rejected : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  // A whole file of at most `bytes_max`. Rejects with path and line.
  static Result<LinedJson> Read(const std::string& path, std::size_t bytes_max);
  static Result<LinedJson> Parse(const std::string& text);

  // The member of an object; null where it has none.
  const LinedJson* Find(const std::string& name) const;
  const LinedJson& At(const std::string& name) const;
  // Rejects a member that is none of these: a misspelt one would mean nothing.
  void AllowOnly(const std::vector<std::string>& names) const;
  // The items of a list of `least` to `most`.
  const std::vector<LinedJson>& Items(std::size_t least, std::size_t most) const;
  double Number(double least, double most) const;
  // A number without a fraction.
  std::uint64_t Count(std::uint64_t least, std::uint64_t most) const;
  std::string Text(std::size_t bytes_max) const;
  [[noreturn]] void Reject(const std::string& expected) const;

 private:
  friend class LinedJsonReader;
  enum class Kind { kNull, kBoolean, kNumber, kText, kList, kObject };

  Kind kind_ = Kind::kNull;
  std::size_t line_ = 1;
  std::string name_;  // The member that it is, or that it is in.
  double number_ = 0;
  std::string text_;
  std::vector<LinedJson> items_;
  std::map<std::string, LinedJson> members_;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_LINED_JSON_H_
