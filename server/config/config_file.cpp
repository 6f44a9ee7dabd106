// SPDX-License-Identifier: Apache-2.0
// TOML form of the configuration. Values are converted to the text that the command line would
// have, so that both sources are validated by the same rules.

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "common/command_line/nearest.h"
#include "ipc/owner.h"
#include "ipc/share.h"
#include "server/config/config.h"
#include "server/config/config_syntax.h"
#include "server/config/config_warnings.h"
#include "server/config/options.h"

namespace gpushared::server {
namespace {

// Returns the position for a message: "config file /etc/gpushared.toml line 4 column 1: ".
std::string At(std::string_view source, const toml::source_region& where) {
  return std::string(source) + " line " + std::to_string(where.begin.line) + " column " +
         std::to_string(where.begin.column) + ": ";
}

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

// Returns the value as it would be written on the command line; no value for types without such a
// form.
std::optional<std::string> AsText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.10g", number->get());
    return text.data();
  }
  const toml::array* list = node.as_array();
  if (list == nullptr) return std::nullopt;
  std::string joined;
  for (const toml::node& item : *list) {
    const auto* text = item.as_string();
    if (text == nullptr) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + text->get();
  }
  return joined;
}

// Parses a quota, an isolation level, or both.
Status SetMemory(std::string_view value, Allowance& rule) {
  for (const std::string_view part : SplitAtCommas(value)) {
    if (const auto isolation = device::ParseIsolation(part)) {
      rule.isolation = isolation;
      continue;
    }
    const Result<MemoryQuota> quota = ParseMemoryQuota(part);
    if (!quota.ok()) {
      return {quota.status().code(),
              std::string(quota.status().message()) + ", or off, fence or contain"};
    }
    rule.memory = *quota;
  }
  return Status::Ok();
}

Status SetAllowance(std::string_view key, const std::string& value, Allowance& rule) {
  if (key == "highest_class") {
    const std::optional<scheduler::SchedulingClass> parsed = ParseClass(value);
    if (!parsed) return NotAllowed(value, "high, normal or low");
    rule.highest_class = *parsed;
    return Status::Ok();
  }
  if (key == "max_weight" || key == "clients_max") {
    const bool is_weight = key == "max_weight";
    const Result<std::uint64_t> count =
        ParseCount(value, is_weight ? 1 : 0, is_weight ? kWeightMax : kClientsPerUidMax);
    if (!count.ok()) return count.status();
    (is_weight ? rule.max_weight : rule.clients_max) = static_cast<std::uint32_t>(*count);
    return Status::Ok();
  }
  if (key == "memory") return SetMemory(value, rule);
  if (key == "max_share" || key == "client_max_share") {
    const Result<std::uint32_t> share = ipc::ParseShare(value);
    if (!share.ok()) return share.status();
    if (key == "max_share") {
      rule.max_share = *share;
    } else {
      rule.client_max_share = *share;
    }
    return Status::Ok();
  }
  const Result<MemoryQuota> quota = ParseMemoryQuota(value);
  if (!quota.ok()) return quota.status();
  (key == "memory_limit" ? rule.memory_limit : rule.client_memory) = *quota;
  return Status::Ok();
}

constexpr std::array<std::string_view, 14> kAccessKeys = {"user",
                                                          "uid",
                                                          "group",
                                                          "gid",
                                                          "everyone",
                                                          "highest_class",
                                                          "max_weight",
                                                          "max_share",
                                                          "client_max_share",
                                                          "latency_targets",
                                                          "memory",
                                                          "client_memory",
                                                          "memory_limit",
                                                          "clients_max"};
constexpr std::array<std::string_view, 17> kEndpointKeys = {
    "name",         "socket",           "class",           "highest_class", "weight",
    "max_share",    "client_max_share", "latency_targets", "memory",        "client_memory",
    "memory_limit", "clients_max",      "budget",          "who",           "devices",
    "owner",        "resume_within"};
constexpr std::array<std::string_view, 4> kSubjectKeys = {"uid", "gid", "user", "group"};

bool IsOneOf(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

// Finds the option of a key, which may be written with underscores or with dashes.
const Option* OptionOfKey(std::string_view key) {
  std::string name(key);
  std::ranges::replace(name, '_', '-');
  return FindOption(name);
}

std::uint32_t LineNumber(const toml::node& node) { return node.source().begin.line; }

// Reads one text into a Config, and continues after errors.
class Reader {
 public:
  Reader(std::string source, Config& config) : source_(std::move(source)), config_(config) {}

  void ReadTable(const toml::table& table);
  EndpointRule ReadEndpoint(const toml::table& table);
  void Fail(const toml::source_region& where, const std::string& why) {
    Fail(where.begin.line, At(source_, where) + why);
  }
  void Fail(std::uint32_t line, std::string message) {
    errors_.emplace_back(line, std::move(message));
  }
  // Returns the errors in the order of the file, and the options' positions.
  ConfigReport Finish() &&;

 private:
  void ReadOption(std::string_view key, const toml::node& node);
  void ReadUnknownKey(std::string_view key, const toml::node& node);
  void ReadAccess(const toml::node& node);
  void ReadAccessEntry(const toml::table& table);
  void ReadEndpoints(const toml::node& node);
  // Reports the key as an error and returns false if it is not one of `known`. `kind` is the name
  // of the table, "access" or "endpoint".
  bool CheckKey(std::string_view kind, std::string_view key, const toml::node& node,
                std::span<const std::string_view> known);
  bool ReadLatencyTargets(std::string_view kind, const toml::node& node, Allowance& rule);

  const std::string source_;
  Config& config_;
  std::vector<std::pair<std::uint32_t, std::string>> errors_;
  std::map<std::string, std::string, std::less<>> places_;
};

bool Reader::CheckKey(std::string_view kind, std::string_view key, const toml::node& node,
                      std::span<const std::string_view> known) {
  if (IsOneOf(key, known)) return true;
  std::string why = std::string(kind) + " key '" + Escaped(key) + "' is unknown";
  if (OptionOfKey(key) != nullptr) {
    why += ": it is a setting of the server, which must be above the first [[" + std::string(kind) +
           "]]";
  } else {
    const std::string meant = command_line::DidYouMean(key, known);
    why += meant + (meant.empty() ? ", allowed: " : " Allowed: ") + Listed(known);
  }
  Fail(node.source(), why);
  return false;
}

bool Reader::ReadLatencyTargets(std::string_view kind, const toml::node& node, Allowance& rule) {
  rule.targets = node.value_exact<bool>();
  if (!rule.targets) {
    Fail(node.source(),
         std::string(kind) + " key latency_targets rejected; allowed: true or false");
  }
  return rule.targets.has_value();
}

void Reader::ReadAccessEntry(const toml::table& table) {
  AccessRule rule;
  rule.line = LineNumber(table);
  int subjects = 0;
  bool is_known = true;  // Whether the rule's subject is known.
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    if (!CheckKey("access", name, node, kAccessKeys)) continue;
    if (name == "everyone") {
      if (node.value_exact<bool>() != true) {
        Fail(node.source(), "access key everyone rejected; allowed: true");
      }
      ++subjects;
      continue;
    }
    if (name == "latency_targets") {
      (void)ReadLatencyTargets("access", node, rule);
      continue;
    }
    const std::optional<std::string> text = AsText(node);
    const bool is_subject = IsOneOf(name, kSubjectKeys);
    if (is_subject) ++subjects;
    Status status;
    if (!text) {
      status = Invalid("wrong type");
    } else if (is_subject) {
      Result<Subject> subject = SubjectNamed(name, *text);
      status = subject.status();
      is_known = subject.ok();
      if (subject.ok()) rule.who = std::move(*subject);
    } else {
      status = SetAllowance(name, *text, rule);
    }
    if (!status.ok()) {
      Fail(node.source(), "access key " + std::string(name) + " rejected: " + status.message());
    }
  }
  if (subjects != 1) {
    return Fail(table.source(),
                "access entry rejected: it names " + std::to_string(subjects) +
                    " subjects, allowed: exactly one of uid, user, gid, group and everyone = "
                    "true");
  }
  if (!is_known) return;
  rule.label = rule.who.label;
  config_.access.push_back(std::move(rule));
}

void Reader::ReadAccess(const toml::node& node) {
  const toml::array* entries = node.as_array();
  const std::string misplaced = "access rejected: write each entry under [[access]]";
  if (entries == nullptr) return Fail(node.source(), misplaced);
  if (entries->size() > kAccessRulesMax) {
    return Fail(node.source(), "access rejected: " + std::to_string(entries->size()) +
                                   " entries, allowed: " + std::to_string(kAccessRulesMax));
  }
  for (const toml::node& entry : *entries) {
    const toml::table* table = entry.as_table();
    if (table == nullptr) return Fail(entry.source(), misplaced);
    ReadAccessEntry(*table);
  }
}

// Allows few characters, because names are also used as names of directories.
Status CheckEndpointName(const std::string& value) {
  const bool is_name =
      !value.empty() && value.size() <= kEndpointNameBytesMax && value != "main" &&
      std::ranges::all_of(value, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
      });
  if (!is_name) {
    return Invalid("asked for '" + Escaped(value) + "', allowed: at most " +
                   std::to_string(kEndpointNameBytesMax) +
                   " of a to z, 0 to 9, - and _, and not 'main'");
  }
  return Status::Ok();
}

Status SetEndpointName(const std::string& value, EndpointRule& rule) {
  if (Status status = CheckEndpointName(value); !status.ok()) return status;
  rule.name = value;
  rule.label = "endpoint '" + value + "'";
  return Status::Ok();
}

Status SetEndpointKey(std::string_view key, const std::string& value, EndpointRule& rule) {
  if (key == "name") return SetEndpointName(value, rule);
  if (key == "budget") {
    rule.budget = value;
    return CheckEndpointName(value);
  }
  if (key == "socket") {
    if (!value.starts_with('/')) {
      return NotAllowed(value, "a path that begins with '/'");
    }
    rule.socket = value;
    return Status::Ok();
  }
  if (key == "class") {
    rule.usual_class = ParseClass(value);
    if (rule.usual_class) return Status::Ok();
    return NotAllowed(value, "high, normal or low");
  }
  if (key == "weight" || key == "clients_max") {
    const bool is_weight = key == "weight";
    const Result<std::uint64_t> count =
        ParseCount(value, 1, is_weight ? kWeightMax : kEndpointClientsMax);
    if (!count.ok()) return count.status();
    (is_weight ? rule.usual_weight : rule.clients_max) = static_cast<std::uint32_t>(*count);
    return Status::Ok();
  }
  if (key == "who") {
    Result<std::vector<Subject>> who = ParseSubjects(value);
    if (!who.ok()) return who.status();
    if (who->empty()) return Invalid("it names no user or group");
    rule.who = std::move(*who);
    return Status::Ok();
  }
  if (key == "devices") {
    for (const std::string_view device : SplitAtCommas(value)) rule.devices.emplace_back(device);
    return Status::Ok();
  }
  if (key == "resume_within") {
    const Result<std::chrono::nanoseconds> time = ParseDuration(value);
    if (!time.ok()) return time.status();
    if (*time > kLeaseGraceMost) {
      return NotAllowed(value, "at most " + FormatDuration(kLeaseGraceMost));
    }
    rule.resume_within = *time;
    return Status::Ok();
  }
  if (key == "owner") {
    rule.owner = value;
    return ipc::Owner::Parse(value).status();
  }
  return SetAllowance(key, value, rule);
}

EndpointRule Reader::ReadEndpoint(const toml::table& table) {
  EndpointRule rule;
  rule.line = LineNumber(table);
  bool has_highest = false;
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    if (!CheckKey("endpoint", name, node, kEndpointKeys)) continue;
    if (name == "latency_targets") {
      (void)ReadLatencyTargets("endpoint", node, rule);
      continue;
    }
    has_highest = has_highest || name == "highest_class";
    const std::optional<std::string> text = AsText(node);
    const Status status = text ? SetEndpointKey(name, *text, rule) : Invalid("wrong type");
    if (!status.ok()) {
      Fail(node.source(), "endpoint key " + std::string(name) + " rejected: " + status.message());
    }
  }
  rule.max_weight = rule.usual_weight;
  if (!has_highest && rule.usual_class) rule.highest_class = *rule.usual_class;
  if (rule.UsualClass() < rule.highest_class) {
    Fail(table.source(), "endpoint rejected: its class is above its highest");
  }
  return rule;
}

void Reader::ReadEndpoints(const toml::node& node) {
  const toml::array* entries = node.as_array();
  const std::string misplaced = "endpoint rejected: write each one under [[endpoint]]";
  if (entries == nullptr) return Fail(node.source(), misplaced);
  if (entries->size() > kEndpointsMax) {
    return Fail(node.source(), "endpoint rejected: " + std::to_string(entries->size()) +
                                   " entries, allowed: " + std::to_string(kEndpointsMax));
  }
  for (const toml::node& entry : *entries) {
    const toml::table* table = entry.as_table();
    if (table == nullptr) return Fail(entry.source(), misplaced);
    EndpointRule rule = ReadEndpoint(*table);
    if (rule.name.empty()) {
      // A name that is present but invalid has already been reported.
      if (!table->contains("name")) Fail(table->source(), "endpoint rejected: it has no name");
      continue;
    }
    if (table->contains("resume_within")) {
      Fail(table->source(), rule.label + " rejected: only a lease can have resume_within");
    }
    const auto is_same = [&](const EndpointRule& other) {
      return other.name == rule.name || (!rule.socket.empty() && other.socket == rule.socket);
    };
    if (std::ranges::any_of(config_.endpoints, is_same)) {
      Fail(table->source(),
           "endpoint '" + rule.name + "' rejected: another one has its name or its socket");
      continue;
    }
    config_.endpoints.push_back(std::move(rule));
  }
}

// Handles an unknown key, which may be the name of an unknown table.
void Reader::ReadUnknownKey(std::string_view key, const toml::node& node) {
  constexpr std::array<std::string_view, 2> kTables = {"access", "endpoint"};
  const bool is_table = node.is_table() || node.is_array_of_tables();
  if (is_table) {
    const std::string_view meant = command_line::Nearest(key, kTables);
    return Fail(node.source(),
                "there is no table '" + Escaped(key) + "'; " +
                    (meant.empty() ? "there are [[access]] and [[endpoint]]"
                                   : "did you mean [[" + std::string(meant) + "]]?"));
  }
  std::vector<std::string> keys;
  for (const Option& option : Options()) keys.push_back(GetKey(option.name));
  std::vector<std::string_view> known(keys.begin(), keys.end());
  if (const std::string meant = command_line::DidYouMean(key, known); !meant.empty()) {
    return Fail(node.source(), "option " + Escaped(key) + " is unknown" + meant);
  }
  if (IsOneOf(key, kAccessKeys) || IsOneOf(key, kEndpointKeys)) {
    return Fail(node.source(), "option " + Escaped(key) +
                                   " is unknown: it is a key of [[access]] or [[endpoint]]");
  }
  Fail(node.source(), "option " + Escaped(key) + " is unknown, allowed: " + Listed(known));
}

void Reader::ReadOption(std::string_view key, const toml::node& node) {
  const Option* const option = OptionOfKey(key);
  if (option == nullptr) return ReadUnknownKey(key, node);
  const std::optional<std::string> value = AsText(node);
  if (!value) {
    return Fail(node.source(), "option " + Escaped(key) +
                                   " rejected; allowed: text and numbers, as in " + Escaped(key) +
                                   " = \"...\"");
  }
  places_.emplace(option->name, At(source_, node.source()));
  const Status status = Apply(*option, *value, config_);
  if (!status.ok()) Fail(node.source(), InKeys(status.message(), option->name));
}

void Reader::ReadTable(const toml::table& table) {
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    if (name == "access") {
      ReadAccess(node);
    } else if (name == "endpoint") {
      ReadEndpoints(node);
    } else {
      ReadOption(name, node);
    }
  }
}

ConfigReport Reader::Finish() && {
  ConfigReport report;
  std::ranges::stable_sort(errors_, {}, &std::pair<std::uint32_t, std::string>::first);
  for (auto& [line, message] : errors_) report.errors.push_back(std::move(message));
  report.places = std::move(places_);
  return report;
}

// The parser stops at the first mistake. A line whose value merely lacks quotes is therefore
// blanked, so that the rest of the text is checked as well.
std::optional<toml::table> Parse(std::string text, const std::string& source, Reader& reader) {
  constexpr int kMistakesMax = 64;
  for (int mistakes = 0;; ++mistakes) {
    toml::parse_result parsed = toml::parse(text, source);
    if (parsed) return std::move(parsed).table();
    const toml::source_position at = parsed.error().source().begin;
    const std::string_view line = GetLine(text, at.line);
    const std::optional<UnquotedValue> unquoted = FindUnquotedValue(line);
    if (!unquoted || mistakes == kMistakesMax) {
      reader.Fail(parsed.error().source(), std::string(parsed.error().description()));
      return std::nullopt;
    }
    reader.Fail(at.line, source + " line " + std::to_string(at.line) + " column " +
                             std::to_string(unquoted->column) + ": " + unquoted->why);
    text.replace(static_cast<std::size_t>(line.data() - text.data()), line.size(), line.size(),
                 ' ');
  }
}

}  // namespace

std::string InKeys(std::string_view message, std::string_view option) {
  std::string text(message);
  if (const std::size_t at = text.find(option); at != std::string::npos) {
    std::ranges::replace(text.begin() + static_cast<std::ptrdiff_t>(at),
                         text.begin() + static_cast<std::ptrdiff_t>(at + option.size()), '-', '_');
  }
  return text;
}

Status ConfigReport::FirstError() const {
  if (errors.empty()) return Status::Ok();
  if (errors.size() == 1) return Invalid(errors.front());
  return Invalid(errors.front() + " (and " + std::to_string(errors.size() - 1) +
                 " more, which gpushared --check-config lists)");
}

Result<EndpointRule> ParseEndpointTerms(std::string_view text, std::string_view source) {
  if (Status status = CheckNesting(text, source); !status.ok()) return status;
  Config none;
  Reader reader{std::string(source), none};
  EndpointRule rule;
  if (const auto table = Parse(std::string(text), std::string(source), reader); table) {
    rule = reader.ReadEndpoint(*table);
  }
  if (const ConfigReport report = std::move(reader).Finish(); !report.errors.empty()) {
    return Invalid(report.errors.front());
  }
  if (!rule.socket.empty()) {
    return Invalid(std::string(source) + " rejected: the server chooses the socket");
  }
  return rule;
}

ConfigReport ReadConfigText(std::string_view text, std::string_view file, Config& config) {
  const std::string source = "config file " + Escaped(file);
  if (const Status status = CheckNesting(text, source); !status.ok()) {
    return {.errors = {status.message()}, .warnings = {}, .places = {}};
  }
  Reader reader(source, config);
  if (const auto table = Parse(std::string(text), source, reader); table) reader.ReadTable(*table);
  ConfigReport report = std::move(reader).Finish();
  report.warnings = FindWarnings(config, source);
  return report;
}

}  // namespace gpushared::server
