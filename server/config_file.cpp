// SPDX-License-Identifier: Apache-2.0
// The TOML side of the configuration. Values become the same text that the command line has, so
// that both sources are judged by one set of rules.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "ipc/share.h"
#include "server/config.h"

namespace gpushared::server {
namespace {

// Where a message points: "config file /etc/gpushared.toml line 4 column 1: ".
std::string At(std::string_view source, const toml::source_region& where) {
  return std::string(source) + " line " + std::to_string(where.begin.line) + " column " +
         std::to_string(where.begin.column) + ": ";
}

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

// What would have been typed on the command line; nothing for kinds that have no such form.
std::optional<std::string> AsText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) {
    std::string text = std::to_string(number->get());
    return text;
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

// A quota, a level of isolation, or both.
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
    if (!parsed)
      return Invalid("asked for '" + Escaped(value) + "', allowed is high, normal or low");
    rule.highest_class = *parsed;
    return Status::Ok();
  }
  if (key == "max_weight" || key == "clients_max") {
    const bool is_weight = key == "max_weight";
    const Result<std::uint64_t> count =
        ParseCount(value, is_weight ? 1 : 0, is_weight ? scheduler::kWeightMax : kClientsPerUidMax);
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

bool IsOneOf(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

Status ApplyAccessEntry(const toml::table& table, std::string_view source, Config& config) {
  AccessRule rule;
  int subjects = 0;
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    const std::string where = At(source, node.source());
    if (name == "everyone") {
      if (node.value_exact<bool>() != true) {
        return Invalid(where + "access key everyone refused: allowed is true");
      }
      ++subjects;
      continue;
    }
    if (name == "promises") {
      rule.promises = node.value_exact<bool>();
      if (!rule.promises) {
        return Invalid(where + "access key promises refused: allowed is true or false");
      }
      continue;
    }
    const bool is_subject = IsOneOf(name, {"uid", "gid", "user", "group"});
    if (!is_subject &&
        !IsOneOf(name, {"highest_class", "max_weight", "max_share", "client_max_share", "memory",
                        "client_memory", "memory_limit", "clients_max"})) {
      return Invalid(where + "access key '" + Escaped(name) +
                     "' is unknown, allowed are uid, user, gid, group, everyone, highest_class, "
                     "max_weight, max_share, client_max_share, promises, memory, client_memory, "
                     "memory_limit and clients_max");
    }
    const std::optional<std::string> text = AsText(node);
    if (!text) return Invalid(where + "access key " + std::string(name) + " refused: wrong type");
    Status status;
    if (is_subject) {
      Result<Subject> subject = SubjectNamed(name, *text);
      status = subject.status();
      if (subject.ok()) rule.who = std::move(*subject);
      ++subjects;
    } else {
      status = SetAllowance(name, *text, rule);
    }
    if (!status.ok()) {
      return Invalid(where + "access key " + std::string(name) + " refused: " + status.message());
    }
  }
  if (subjects != 1) {
    return Invalid(
        At(source, table.source()) + "access entry refused: it names " + std::to_string(subjects) +
        " subjects, allowed is exactly one of uid, user, gid, group and everyone = true");
  }
  rule.label = rule.who.label;
  config.access.push_back(std::move(rule));
  return Status::Ok();
}

Status ApplyAccess(const toml::node& node, std::string_view source, Config& config) {
  const toml::array* entries = node.as_array();
  if (entries == nullptr) {
    return Invalid(At(source, node.source()) + "access refused: write each entry under [[access]]");
  }
  if (entries->size() > kAccessRulesMax) {
    return Invalid(At(source, node.source()) +
                   "access refused: " + std::to_string(entries->size()) + " entries, allowed are " +
                   std::to_string(kAccessRulesMax));
  }
  for (const toml::node& entry : *entries) {
    const toml::table* table = entry.as_table();
    if (table == nullptr) {
      return Invalid(At(source, entry.source()) +
                     "access refused: write each entry under [[access]]");
    }
    if (Status status = ApplyAccessEntry(*table, source, config); !status.ok()) return status;
  }
  return Status::Ok();
}

// Names are folders, too.
Status CheckEntranceName(const std::string& value) {
  const bool is_name =
      !value.empty() && value.size() <= kEntranceNameBytesMax && value != "main" &&
      std::ranges::all_of(value, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
      });
  if (!is_name) {
    return Invalid("asked for '" + Escaped(value) + "', allowed are at most " +
                   std::to_string(kEntranceNameBytesMax) +
                   " of a to z, 0 to 9, - and _, and not 'main'");
  }
  return Status::Ok();
}

Status SetEntranceName(const std::string& value, EntranceRule& rule) {
  if (Status status = CheckEntranceName(value); !status.ok()) return status;
  rule.name = value;
  rule.label = "entrance '" + value + "'";
  return Status::Ok();
}

Status SetEntranceKey(std::string_view key, const std::string& value, EntranceRule& rule) {
  if (key == "name") return SetEntranceName(value, rule);
  if (key == "budget") {
    rule.budget = value;
    return CheckEntranceName(value);
  }
  if (key == "socket") {
    if (!value.starts_with('/')) {
      return Invalid("asked for '" + Escaped(value) + "', allowed is a path that begins with '/'");
    }
    rule.socket = value;
    return Status::Ok();
  }
  if (key == "class") {
    rule.usual_class = ParseClass(value);
    if (rule.usual_class) return Status::Ok();
    return Invalid("asked for '" + Escaped(value) + "', allowed is high, normal or low");
  }
  if (key == "weight" || key == "clients_max") {
    const bool is_weight = key == "weight";
    const Result<std::uint64_t> count =
        ParseCount(value, 1, is_weight ? scheduler::kWeightMax : kEntranceClientsMax);
    if (!count.ok()) return count.status();
    (is_weight ? rule.usual_weight : rule.clients_max) = static_cast<std::uint32_t>(*count);
    return Status::Ok();
  }
  if (key == "who") {
    Result<std::vector<Subject>> who = ParseSubjects(value);
    if (!who.ok()) return who.status();
    if (who->empty()) return Invalid("it names nobody");
    rule.who = std::move(*who);
    return Status::Ok();
  }
  if (key == "devices") {
    for (const std::string_view device : SplitAtCommas(value)) rule.devices.emplace_back(device);
    return Status::Ok();
  }
  return SetAllowance(key, value, rule);
}

Result<EntranceRule> ParseEntrance(const toml::table& table, std::string_view source) {
  EntranceRule rule;
  bool has_highest = false;
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    const std::string where = At(source, node.source());
    if (name == "promises") {
      rule.promises = node.value_exact<bool>();
      if (rule.promises) continue;
      return Invalid(where + "entrance key promises refused: allowed is true or false");
    }
    if (!IsOneOf(name, {"name", "socket", "class", "highest_class", "weight", "max_share",
                        "client_max_share", "memory", "client_memory", "memory_limit",
                        "clients_max", "budget", "who", "devices"})) {
      return Invalid(where + "entrance key '" + Escaped(name) +
                     "' is unknown, allowed are name, socket, class, highest_class, weight, "
                     "max_share, client_max_share, promises, memory, client_memory, memory_limit, "
                     "clients_max, "
                     "budget, who "
                     "and devices");
    }
    has_highest = has_highest || name == "highest_class";
    const std::optional<std::string> text = AsText(node);
    const Status status = text ? SetEntranceKey(name, *text, rule) : Invalid("wrong type");
    if (!status.ok()) {
      return Invalid(where + "entrance key " + std::string(name) + " refused: " + status.message());
    }
  }
  rule.max_weight = rule.usual_weight;
  if (!has_highest && rule.usual_class) rule.highest_class = *rule.usual_class;
  if (rule.UsualClass() < rule.highest_class) {
    return Invalid(At(source, table.source()) + "entrance refused: its class is above its highest");
  }
  return rule;
}

Status ApplyEntrances(const toml::node& node, std::string_view source, Config& config) {
  const toml::array* entries = node.as_array();
  Status misplaced =
      Invalid(At(source, node.source()) + "entrance refused: write each one under [[entrance]]");
  if (entries == nullptr) return misplaced;
  if (entries->size() > kEntrancesMax) {
    return Invalid(At(source, node.source()) +
                   "entrance refused: " + std::to_string(entries->size()) +
                   " entries, allowed are " + std::to_string(kEntrancesMax));
  }
  for (const toml::node& entry : *entries) {
    const toml::table* table = entry.as_table();
    if (table == nullptr) return misplaced;
    Result<EntranceRule> rule = ParseEntrance(*table, source);
    if (!rule.ok()) return rule.status();
    const std::string where = At(source, table->source());
    if (rule->name.empty()) return Invalid(where + "entrance refused: it has no name");
    const auto is_same = [&](const EntranceRule& other) {
      return other.name == rule->name || (!rule->socket.empty() && other.socket == rule->socket);
    };
    if (std::ranges::any_of(config.entrances, is_same)) {
      return Invalid(where + "entrance '" + rule->name +
                     "' refused: another one has its name or its socket");
    }
    config.entrances.push_back(std::move(*rule));
  }
  return Status::Ok();
}

}  // namespace

Result<EntranceRule> ParseEntranceTerms(std::string_view text, std::string_view source) {
  const toml::parse_result parsed = toml::parse(text, source);
  if (!parsed) {
    return Invalid(At(source, parsed.error().source()) + std::string(parsed.error().description()));
  }
  Result<EntranceRule> rule = ParseEntrance(parsed.table(), source);
  if (rule.ok() && !rule->socket.empty()) {
    return Invalid(std::string(source) + " refused: the server chooses the socket");
  }
  return rule;
}

Status ApplyConfigText(std::string_view text, std::string_view file, Config& config) {
  const std::string source = "config file " + Escaped(file);
  const toml::parse_result parsed = toml::parse(text, source);
  if (!parsed) {
    return Invalid(At(source, parsed.error().source()) + std::string(parsed.error().description()));
  }
  for (const auto& [key, node] : parsed.table()) {
    const std::string_view name = key.str();
    if (name == "access") {
      if (Status status = ApplyAccess(node, source, config); !status.ok()) return status;
      continue;
    }
    if (name == "entrance") {
      if (Status status = ApplyEntrances(node, source, config); !status.ok()) return status;
      continue;
    }
    std::string option(name);
    std::replace(option.begin(), option.end(), '_', '-');
    const std::optional<std::string> value = AsText(node);
    if (!value) {
      return Invalid(At(source, node.source()) + "option " + Escaped(option) +
                     " refused: allowed are text and numbers");
    }
    const Status status = ApplyOption(option, *value, config);
    if (!status.ok()) return Invalid(At(source, node.source()) + status.message());
  }
  return Status::Ok();
}

}  // namespace gpushared::server
