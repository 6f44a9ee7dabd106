// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/json_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

using nlohmann::json;

constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;
constexpr std::size_t kDepthMax = 16;

std::string NumberText(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", number);
  return text.data();
}

json Parse(const std::string& text) {
  std::vector<std::set<std::string>> names;  // Members of each open object; empty for a list.
  return json::parse(text, [&](int, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      names.emplace_back();
      if (names.size() > kDepthMax) {
        throw JsonView::Rejected("lists and objects are nested more than " +
                                 std::to_string(kDepthMax) + " deep");
      }
    } else if (event == Event::object_end || event == Event::array_end) {
      names.pop_back();
    } else if (event == Event::key && !names.back().insert(parsed.get<std::string>()).second) {
      throw JsonView::Rejected("'" + parsed.get<std::string>() + "' occurs twice");
    }
    return true;
  });
}

}  // namespace

Result<json> JsonView::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> part{};
  while (file && text.size() <= kFileBytesMax) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof() && text.empty())
    return Status(StatusCode::kInvalidArgument, "cannot read '" + path + "'");
  if (text.size() > kFileBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + path + "' has more than " + std::to_string(kFileBytesMax) + " bytes");
  }
  try {
    return Parse(text);
  } catch (const json::exception& error) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is not JSON: " + error.what());
  } catch (const Rejected& rejected) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "': " + rejected.what());
  }
}

JsonView JsonView::Member(const std::string& name, const json& value) const {
  return JsonView(value, path_.empty() ? name : path_ + "." + name);
}

std::optional<JsonView> JsonView::Find(const std::string& name) const {
  if (!value_->is_object()) Reject("an object");
  const auto found = value_->find(name);
  return found == value_->end() ? std::nullopt : std::optional(Member(name, *found));
}

JsonView JsonView::At(const std::string& name) const {
  const std::optional<JsonView> found = Find(name);
  if (!found) Reject("an object with '" + name + "'");
  return *found;
}

void JsonView::AllowOnly(const std::vector<std::string>& names) const {
  if (!value_->is_object()) Reject("an object");
  for (const auto& [name, member] : value_->items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string listed;
    for (const std::string& each : names) listed += (listed.empty() ? "" : ", ") + each;
    Member(name, member).Reject("one of " + listed);
  }
}

std::vector<JsonView> JsonView::Items(std::size_t least, std::size_t most) const {
  if (!value_->is_array() || value_->size() < least || value_->size() > most)
    Reject("a list of " + std::to_string(least) + " to " + std::to_string(most));
  std::vector<JsonView> items;
  for (std::size_t i = 0; i < value_->size(); ++i)
    items.emplace_back((*value_)[i], path_ + "[" + std::to_string(i) + "]");
  return items;
}

double JsonView::Number(double least, double most) const {
  const double number = value_->is_number() ? value_->get<double>() : std::nan("");
  if (!(number >= least && number <= most))
    Reject("a number from " + NumberText(least) + " to " + NumberText(most));
  return number;
}

std::uint64_t JsonView::Count(std::uint64_t least, std::uint64_t most) const {
  const double number = Number(static_cast<double>(least), static_cast<double>(most));
  if (number != std::floor(number)) Reject("a number without a fraction");
  return static_cast<std::uint64_t>(number);
}

std::string JsonView::Text(std::size_t bytes_max) const {
  const std::string text = value_->is_string() ? value_->get<std::string>() : "";
  if (text.empty() || text.size() > bytes_max)
    Reject("a text of 1 to " + std::to_string(bytes_max) + " bytes");
  return text;
}

std::size_t JsonView::OneOf(std::span<const std::string_view> names) const {
  const auto found =
      std::find(names.begin(), names.end(), value_->is_string() ? value_->get<std::string>() : "");
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string listed;
  for (const std::string_view name : names)
    listed += (listed.empty() ? "" : ", ") + std::string(name);
  Reject("one of " + listed);
}

void JsonView::Reject(const std::string& expected) const {
  std::string found = path_.empty() ? "the file's value" : "'" + path_ + "'";
  if (value_->is_number()) found += " " + NumberText(value_->get<double>());
  if (value_->is_string()) found += " \"" + value_->get<std::string>().substr(0, 40) + "\"";
  throw Rejected(found + " is not " + expected);
}

}  // namespace gpushared::simulation
