// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_JSON_VIEW_H_
#define GPUSHARED_SCHEDULER_SIM_JSON_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpushared/result.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::simulation {

// A value of a JSON file with its path, such as "clients[2].kernels". Files are untrusted input:
// each accessor checks for the value that it expects, and throws Rejected with the path otherwise.
//
// Value that borrows the JSON.
class JsonView {
 public:
  struct Rejected : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  explicit JsonView(const nlohmann::json& value, std::string path = "")
      : value_(&value), path_(std::move(path)) {}

  // Rejects files of more than 64 MiB, and members that occur twice.
  static Result<nlohmann::json> Read(const std::string& path);

  // Returns the member of an object, if it has such a member.
  std::optional<JsonView> Find(const std::string& name) const;
  JsonView At(const std::string& name) const;
  // Rejects any other member, because otherwise a misspelt member would be ignored silently.
  void AllowOnly(const std::vector<std::string>& names) const;
  // Returns the items of a list of `least` to `most` items.
  std::vector<JsonView> Items(std::size_t least, std::size_t most) const;
  double Number(double least, double most) const;
  // Returns a number without a fraction.
  std::uint64_t Count(std::uint64_t least, std::uint64_t most) const;
  std::string Text(std::size_t bytes_max) const;
  // Returns the index of the text in the list.
  std::size_t OneOf(std::span<const std::string_view> names) const;
  [[noreturn]] void Reject(const std::string& expected) const;

 private:
  JsonView Member(const std::string& name, const nlohmann::json& value) const;

  const nlohmann::json* value_;
  std::string path_;  // Empty for the whole file.
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_JSON_VIEW_H_
