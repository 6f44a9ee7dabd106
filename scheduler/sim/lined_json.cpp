// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/lined_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

// Nesting limit, because otherwise a file of nothing but brackets would exhaust the stack.
constexpr std::size_t kDepthMax = 16;

// Iterates over a text and tracks the line of the last character that was not white space,
// because the token that the parser has just read ends there.
class LineCounter {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;

  struct Place {
    std::size_t line = 1;
    std::size_t last = 1;  // Line of the last character that is not white space.
  };

  LineCounter(const char* at, Place* place) : at_(at), place_(place) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_ == '\n') {
      ++place_->line;
    } else if (std::string_view(" \t\r").find(*at_) == std::string_view::npos) {
      place_->last = place_->line;
    }
    ++at_;
    return *this;
  }
  LineCounter operator++(int) {
    const LineCounter before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const LineCounter& a, const LineCounter& b) { return a.at_ == b.at_; }
  friend bool operator!=(const LineCounter& a, const LineCounter& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  Place* place_;
};

std::string NumberText(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", number);
  return text.data();
}

}  // namespace

// Builds the value while the parser reports its parts.
class LinedJsonReader {
 public:
  using number_integer_t = std::int64_t;
  using number_unsigned_t = std::uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  explicit LinedJsonReader(const LineCounter::Place& place) : place_(place) {}

  bool null() { return Add(LinedJson::Kind::kNull) != nullptr; }
  bool boolean(bool) { return Add(LinedJson::Kind::kBoolean) != nullptr; }
  bool number_integer(std::int64_t value) { return Number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) { return Number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) { return Number(value); }
  bool string(std::string& value) {
    LinedJson* const added = Add(LinedJson::Kind::kText);
    if (added != nullptr) added->text_ = value;
    return added != nullptr;
  }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) { return Begin(LinedJson::Kind::kObject); }
  bool start_array(std::size_t) { return Begin(LinedJson::Kind::kList); }
  bool key(std::string& name) {
    key_ = name;
    return true;
  }
  bool end_object() { return End(); }
  bool end_array() { return End(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) {
    return false;
  }

  // Returns why the value was rejected; empty if it was accepted or if the text is not JSON.
  const std::string& why() const { return why_; }
  LinedJson Take() { return std::move(root_); }

 private:
  bool Number(double value) {
    LinedJson* const added = Add(LinedJson::Kind::kNumber);
    if (added != nullptr) added->number_ = value;
    return added != nullptr;
  }

  bool Begin(LinedJson::Kind kind) {
    if (open_.size() == kDepthMax) {
      why_ = "lists and objects are nested more than " + std::to_string(kDepthMax) + " deep";
      return false;
    }
    LinedJson* const added = Add(kind);
    if (added != nullptr) open_.push_back(added);
    return added != nullptr;
  }

  bool End() {
    open_.pop_back();
    return true;
  }

  // Pointers to open values stay valid, because only the last element of a list or object grows.
  LinedJson* Add(LinedJson::Kind kind) {
    LinedJson* added = &root_;
    if (!open_.empty() && open_.back()->kind_ == LinedJson::Kind::kObject) {
      const auto [place, is_new] = open_.back()->members_.try_emplace(key_);
      if (!is_new) {
        why_ = "'" + key_ + "' occurs twice";
        return nullptr;
      }
      added = &place->second;
      added->name_ = key_;
    } else if (!open_.empty()) {
      added = &open_.back()->items_.emplace_back();
      added->name_ = open_.back()->name_;
    }
    added->kind_ = kind;
    added->line_ = place_.last;
    return added;
  }

  const LineCounter::Place& place_;
  LinedJson root_;
  std::vector<LinedJson*> open_;
  std::string key_, why_;
};

Result<LinedJson> LinedJson::Parse(const std::string& text) {
  LineCounter::Place place;
  LinedJsonReader reader(place);
  const bool is_read = nlohmann::json::sax_parse(
      LineCounter(text.data(), &place), LineCounter(text.data() + text.size(), &place), &reader);
  if (is_read) return reader.Take();
  return Status(StatusCode::kInvalidArgument,
                "line " + std::to_string(place.last) + ": " +
                    (reader.why().empty() ? "this is not JSON" : reader.why()));
}

Result<LinedJson> LinedJson::Read(const std::string& path, std::size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> part{};
  while (file && text.size() <= bytes_max) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof() && text.empty())
    return Status(StatusCode::kInvalidArgument, "cannot read '" + path + "'");
  if (text.size() > bytes_max) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + path + "' has more than " + std::to_string(bytes_max) + " bytes");
  }
  Result<LinedJson> read = Parse(text);
  if (read.ok()) return read;
  return Status(StatusCode::kInvalidArgument, "'" + path + "' " + read.status().message());
}

const LinedJson* LinedJson::Find(const std::string& name) const {
  if (kind_ != Kind::kObject) Reject("an object");
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

const LinedJson& LinedJson::At(const std::string& name) const {
  const LinedJson* const found = Find(name);
  if (found == nullptr) Reject("an object with '" + name + "'");
  return *found;
}

void LinedJson::AllowOnly(const std::vector<std::string>& names) const {
  if (kind_ != Kind::kObject) Reject("an object");
  for (const auto& [name, member] : members_) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string listed;
    for (const std::string& each : names) listed += (listed.empty() ? "" : ", ") + each;
    member.Reject("one of " + listed);
  }
}

const std::vector<LinedJson>& LinedJson::Items(std::size_t least, std::size_t most) const {
  if (kind_ != Kind::kList || items_.size() < least || items_.size() > most)
    Reject("a list of " + std::to_string(least) + " to " + std::to_string(most));
  return items_;
}

double LinedJson::Number(double least, double most) const {
  if (kind_ != Kind::kNumber || !(number_ >= least && number_ <= most))
    Reject("a number from " + NumberText(least) + " to " + NumberText(most));
  return number_;
}

std::uint64_t LinedJson::Count(std::uint64_t least, std::uint64_t most) const {
  const double number = Number(static_cast<double>(least), static_cast<double>(most));
  if (number != std::floor(number)) Reject("a number without a fraction");
  return static_cast<std::uint64_t>(number);
}

std::string LinedJson::Text(std::size_t bytes_max) const {
  if (kind_ != Kind::kText || text_.empty() || text_.size() > bytes_max)
    Reject("a text of 1 to " + std::to_string(bytes_max) + " bytes");
  return text_;
}

void LinedJson::Reject(const std::string& expected) const {
  std::string found = "the file's value";
  if (!name_.empty()) found = "'" + name_ + "'";
  if (kind_ == Kind::kNumber) found += " " + NumberText(number_);
  if (kind_ == Kind::kText) found += " \"" + text_.substr(0, 40) + "\"";
  throw Rejected("line " + std::to_string(line_) + ": " + found + " is not " + expected);
}

}  // namespace gpushared::simulation
