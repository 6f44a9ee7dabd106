// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/slurm/job_rules.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "ipc/share.h"
#include "scheduler/class_name.h"
#include "server/config/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::slurm {
namespace {

using scheduler::SchedulingClass;
using server::Escaped;
using server::FormatBytes;

constexpr std::string_view kShareGres = "gpushared", kMemoryGres = "gpushared_memory";
constexpr std::uint64_t kSharesOfDevice = 100;  // Unit of the gres: hundredths of a device's time.
constexpr std::uint32_t kClientsUsual = 32, kClientsPerTask = 4, kClientsMax = 8192;

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

std::string At(std::string_view source, const toml::source_region& where) {
  return std::string(source) + " line " + std::to_string(where.begin.line) + " column " +
         std::to_string(where.begin.column) + ": ";
}

template <typename T>
Status Take(Result<T> parsed, T& into) {
  if (parsed.ok()) into = *parsed;
  return parsed.ok() ? Status::Ok() : parsed.status();
}

Status TakeBytes(const std::string& value, std::optional<std::uint64_t>& into) {
  const Result<std::uint64_t> parsed = server::ParseBytes(value);
  if (parsed.ok()) into = *parsed;
  return parsed.ok() ? Status::Ok() : parsed.status();
}

Status TakeClass(const std::string& value, SchedulingClass& into) {
  const std::optional<SchedulingClass> parsed = server::ParseClass(value);
  if (!parsed) return Invalid("asked for '" + Escaped(value) + "', allowed: high, normal and low");
  into = *parsed;
  return Status::Ok();
}

Status SetQosKey(std::string_view key, const std::string& value, QosRule& rule) {
  if (key == "class") return TakeClass(value, rule.usual_class);
  if (key == "highest_class") return TakeClass(value, rule.highest_class);
  if (key == "share") return Take(ipc::ParseShare(value), rule.share);
  if (key == "highest_share") return Take(ipc::ParseShare(value), rule.highest_share);
  if (key == "memory") return TakeBytes(value, rule.memory);
  if (key == "highest_memory") return TakeBytes(value, rule.highest_memory);
  return Invalid("allowed: class, highest_class, share, highest_share, memory, highest_memory");
}

Result<QosRule> ParseQos(const toml::table& table, std::string_view source) {
  QosRule rule;
  for (const auto& [key, node] : table) {
    const auto* text = node.as_string();
    const Status status =
        text != nullptr ? SetQosKey(key.str(), text->get(), rule) : Invalid("it is not a string");
    if (!status.ok()) {
      return Invalid(At(source, node.source()) + "QOS key '" + Escaped(key.str()) +
                     "' rejected: " + status.message());
    }
  }
  // A missing default or limit gets the value of the other one.
  if (!table.contains("highest_class")) rule.highest_class = rule.usual_class;
  if (!table.contains("class")) {
    rule.usual_class = std::max(rule.highest_class, SchedulingClass::kNormal);
  }
  if (!table.contains("share")) rule.share = rule.highest_share;
  if (!rule.memory) rule.memory = rule.highest_memory;
  if (rule.usual_class < rule.highest_class || rule.share > rule.highest_share ||
      (rule.highest_memory && *rule.memory > *rule.highest_memory)) {
    return Invalid(At(source, table.source()) +
                   "QOS rule rejected: its class, share or memory is above its highest_class, "
                   "highest_share or highest_memory");
  }
  return rule;
}

Status ApplyQos(const toml::node& node, std::string_view source, JobRules& rules) {
  const toml::table* const table = node.as_table();
  if (table == nullptr || table->size() > kQosMax) {
    return Invalid(At(source, node.source()) + "qos rejected; allowed: at most " +
                   std::to_string(kQosMax) + " tables [qos.NAME]");
  }
  for (const auto& [name, entry] : *table) {
    const toml::table* const of_qos = entry.as_table();
    if (of_qos == nullptr) {
      return Invalid(At(source, entry.source()) + "qos rejected: write [qos.NAME]");
    }
    const Result<QosRule> rule = ParseQos(*of_qos, source);
    if (!rule.ok()) return rule.status();
    rules.of_qos.emplace(name.str(), *rule);
  }
  return Status::Ok();
}

Status ApplyKey(std::string_view key, const toml::node& node, std::string_view source,
                JobRules& rules) {
  if (key == "qos") return ApplyQos(node, source, rules);
  if (key == "other_qos" && node.is_table()) {
    const Result<QosRule> rule = ParseQos(*node.as_table(), source);
    if (rule.ok()) rules.of_others = *rule;
    return rule.ok() ? Status::Ok() : rule.status();
  }
  if (key == "needs_gres" && node.is_boolean()) {
    rules.needs_gres = node.as_boolean()->get();
    return Status::Ok();
  }
  if (key == "socket" && node.is_string() && node.as_string()->get().starts_with('/')) {
    rules.socket = node.as_string()->get();
    return Status::Ok();
  }
  return Invalid(At(source, node.source()) + "key '" + Escaped(key) +
                 "' rejected; allowed: socket = \"/PATH\", needs_gres = true or false, "
                 "[qos.NAME] and [other_qos]");
}

// Parses "25"; returns no value if the text is not a whole number.
std::optional<std::uint64_t> Count(std::string_view text) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(count) : std::nullopt;
}

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Converts a model's name in the way in which Slurm derives the types that it detects: returns
// "nvidia_h100_pcie" for "NVIDIA H100 PCIe".
std::string LowerCased(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    c = c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower;
}

// Finds whole words only, because "l4" would otherwise match the L40 as well.
bool HasWords(std::string_view text, std::string_view words) {
  for (std::size_t at = text.find(words); at != std::string_view::npos;
       at = text.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    const bool begins = at == 0 || !IsWordCharacter(text[at - 1]);
    if (begins && (end == text.size() || !IsWordCharacter(text[end]))) return true;
  }
  return false;
}

struct GresPart {
  std::string_view text, name, type, count;
};

// Parses "name(CNT:count)", the format of Slurm 22.05, or "name:count"; a type may follow the name.
GresPart Split(std::string_view part) {
  constexpr std::string_view kCount = "(CNT:";
  GresPart split = {.text = part};
  std::string_view names = part;
  const std::size_t bracket = part.find(kCount);
  if (bracket != std::string_view::npos && part.ends_with(')')) {
    names = part.substr(0, bracket);
    split.count = part.substr(bracket + kCount.size());
    split.count.remove_suffix(1);
  } else if (const std::size_t last = part.rfind(':'); last != std::string_view::npos) {
    names = part.substr(0, last);
    split.count = part.substr(last + 1);
  }
  const std::size_t colon = names.find(':');
  split.name = names.substr(0, colon);
  if (colon != std::string_view::npos) split.type = names.substr(colon + 1);
  return split;
}

Status TakeGres(const GresPart& part, Allocation& has) {
  const bool is_share = part.name == kShareGres;
  const std::optional<std::uint64_t> count = Count(part.count);
  if (!count) {
    return {StatusCode::kProtocolViolation,
            "gres rejected: there is no count in '" + Escaped(part.text) + "'"};
  }
  if (*count == 0) return Status::Ok();
  if (!part.type.empty()) {
    if (!has.type.empty() && has.type != part.type) {
      const std::string type = Escaped(part.type);
      return Invalid("gres rejected: the controller allocated " + Escaped(has.type) + " and " +
                     type + " to the job, but a step uses one device; ask for one type, such as " +
                     std::string(kShareGres) + ":" + type + ":N," + std::string(kMemoryGres) + ":" +
                     type + ":N");
    }
    has.type = part.type;
  }
  if (!is_share) {
    has.memory_bytes = has.memory_bytes.value_or(0) + *count;
    return Status::Ok();
  }
  // Converts hundredths to thousandths.
  const std::uint64_t share = has.share.value_or(0) + std::min(*count, kSharesOfDevice + 1) * 10;
  if (share > kSharePerMilleMax) {
    return Invalid("gres rejected: the job has more than " + std::to_string(kSharesOfDevice) + " " +
                   std::string(kShareGres) + " on this node, but a step uses one device");
  }
  has.share = static_cast<std::uint32_t>(share);
  return Status::Ok();
}

Status Above(const char* what, const std::string& asked, const std::string& allowed,
             const StepFacts& step) {
  return {StatusCode::kPermissionDenied,
          std::string(what) + " rejected: asked for " + asked + ", allowed: " + allowed +
              " [QOS '" + Escaped(step.qos) + "', job " + std::to_string(step.job) + "]"};
}

// Part of a device that was allocated to the job on this node, and limits for each client of the
// step.
struct Part {
  SchedulingClass usual_class, highest_class;
  std::uint32_t share = 0;
  std::optional<std::uint32_t> client_share;
  std::optional<std::uint64_t> memory, client_memory;
};

Status TakeClassOf(const QosRule& rule, const StepFacts& step, const StepOptions& options,
                   Part& part) {
  part.usual_class = rule.usual_class;
  part.highest_class = rule.highest_class;
  if (options.scheduling_class.empty()) return Status::Ok();
  const SchedulingClass asked = *server::ParseClass(options.scheduling_class);
  if (asked < rule.highest_class) {
    return Above("class", options.scheduling_class,
                 std::string(scheduler::ClassName(rule.highest_class)), step);
  }
  part.usual_class = part.highest_class = asked;
  return Status::Ok();
}

Status TakeShareOf(const QosRule& rule, const StepFacts& step, const Allocation& has,
                   const StepOptions& options, Part& part) {
  part.share = has.share.value_or(rule.share);
  if (part.share > rule.highest_share) {
    return Above("share", ipc::ShareText(part.share), ipc::ShareText(rule.highest_share), step);
  }
  if (options.share.empty()) return Status::Ok();
  part.client_share = *ipc::ParseShare(options.share);
  if (*part.client_share <= part.share) return Status::Ok();
  return Above("share", ipc::ShareText(*part.client_share),
               "the job's on this node, " + ipc::ShareText(part.share), step);
}

Status TakeMemoryOf(const QosRule& rule, const StepFacts& step, const Allocation& has,
                    const StepOptions& options, Part& part) {
  part.memory = has.memory_bytes ? has.memory_bytes : rule.memory;
  if (part.memory && rule.highest_memory && *part.memory > *rule.highest_memory) {
    return Above("memory", FormatBytes(*part.memory), FormatBytes(*rule.highest_memory), step);
  }
  if (!options.memory.empty()) {
    part.client_memory = *server::ParseBytes(options.memory);
    if (part.memory && *part.client_memory > *part.memory) {
      return Above("memory", FormatBytes(*part.client_memory),
                   "the job's on this node, " + FormatBytes(*part.memory), step);
    }
  } else if (part.memory) {
    // The memory is divided by the number of tasks, because the first task could otherwise allocate
    // all of it.
    part.client_memory = *part.memory / std::max(step.tasks, 1U);
  }
  return Status::Ok();
}

std::string TermsText(const StepFacts& step, const Part& part, const std::string& device) {
  const std::string job = "slurm-" + std::to_string(step.job);
  std::string name = job + "-" + step.step;
  if (step.restarts > 0) name += "-r" + std::to_string(step.restarts);
  std::string terms;
  const auto add = [&](const char* key, const nlohmann::json& value) {
    terms += key + (" = " + value.dump()) + "\n";  // JSON's strings and numbers are valid TOML.
  };
  add("name", name);
  add("budget", job);
  add("class", scheduler::ClassName(part.usual_class));
  add("highest_class", scheduler::ClassName(part.highest_class));
  add("max_share", ipc::ShareText(part.share));
  if (part.client_share) add("client_max_share", ipc::ShareText(*part.client_share));
  if (part.memory) add("memory", std::to_string(*part.memory) + "B");
  if (part.client_memory) add("client_memory", std::to_string(*part.client_memory) + "B");
  const std::uint64_t clients = std::uint64_t{kClientsPerTask} * step.tasks;
  add("clients_max",
      std::clamp<std::uint64_t>(clients, std::uint64_t{kClientsUsual}, std::uint64_t{kClientsMax}));
  if (!device.empty()) add("devices", nlohmann::json::array({device}));
  add("who", nlohmann::json::array({"uid:" + std::to_string(step.uid)}));
  add("owner",
      nlohmann::json::array({"hpc_job:" + std::to_string(step.job), "hpc_step:" + step.step}));
  return terms;
}

}  // namespace

Result<JobRules> ParseJobRules(std::string_view text, std::string_view source) {
  const toml::parse_result parsed = toml::parse(text, source);
  if (!parsed) {
    return Invalid(At(source, parsed.error().source()) + std::string(parsed.error().description()));
  }
  JobRules rules;
  for (const auto& [key, node] : parsed.table()) {
    const Status status = ApplyKey(key.str(), node, source, rules);
    if (!status.ok()) return status;
  }
  return rules;
}

Result<Allocation> ParseAllocation(std::string_view gres) {
  Allocation has;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= gres.size(); ++at) {
    const char c = at < gres.size() ? gres[at] : ',';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c != ',' || (depth > 0 && at < gres.size())) continue;
    const GresPart part = Split(gres.substr(begin, at - begin));
    begin = at + 1;
    if (part.name != kShareGres && part.name != kMemoryGres) continue;
    if (const Status status = TakeGres(part, has); !status.ok()) return status;
  }
  return has;
}

Result<std::string> DeviceOfType(std::string_view type, const std::vector<NodeDevice>& devices) {
  const std::string words = LowerCased(type);
  std::string found, all;
  std::size_t matches = 0;
  for (const NodeDevice& each : devices) {
    std::string same = LowerCased(each.device);
    std::erase(same, ':');
    if (same == words) return each.device;
    all += (all.empty() ? "" : ", ") + Escaped(each.device) + " (" + Escaped(each.name) + ")";
    if (!HasWords(LowerCased(each.name), words)) continue;
    found = each.device;
    ++matches;
  }
  if (matches == 1) return found;
  return Invalid("gres rejected: type '" + Escaped(type) + "' refers to " +
                 (matches == 0 ? "none" : "more than one") + " of this node's devices, " + all +
                 "; the operator must use a type such as cuda0 for the device cuda:0");
}

Status CheckOptions(const StepOptions& options) {
  SchedulingClass scheduling_class;
  if (!options.scheduling_class.empty()) {
    const Status status = TakeClass(options.scheduling_class, scheduling_class);
    if (!status.ok()) return Invalid("class rejected: " + status.message());
  }
  if (!options.share.empty()) {
    const Result<std::uint32_t> share = ipc::ParseShare(options.share);
    if (!share.ok()) return Invalid("share rejected: " + share.status().message());
  }
  if (!options.memory.empty()) {
    const Result<std::uint64_t> memory = server::ParseBytes(options.memory);
    if (!memory.ok()) return Invalid("memory rejected: " + memory.status().message());
  }
  return Status::Ok();
}

Result<std::optional<std::string>> StepTerms(const JobRules& rules, const StepFacts& step,
                                             const Allocation& has, const std::string& device,
                                             const StepOptions& options) {
  if (Status status = CheckOptions(options); !status.ok()) return status;
  if (!has.share && rules.needs_gres) {
    const bool asks = has.memory_bytes || !options.scheduling_class.empty() ||
                      !options.share.empty() || !options.memory.empty();
    if (!asks) return std::optional<std::string>();
    return Status(StatusCode::kPermissionDenied,
                  "job " + std::to_string(step.job) +
                      " rejected: it has no share of a device here; ask for one with "
                      "--gres=gpushared:N, hundredths of a device's time");
  }
  const auto found = rules.of_qos.find(step.qos);
  if (found == rules.of_qos.end() && !rules.of_others) {
    return Status(StatusCode::kPermissionDenied,
                  "job " + std::to_string(step.job) + " rejected: there is no rule for QOS '" +
                      Escaped(step.qos) + "' and no [other_qos]; ask the operator");
  }
  const QosRule& rule = found == rules.of_qos.end() ? *rules.of_others : found->second;
  Part part = {};
  Status status = TakeClassOf(rule, step, options, part);
  if (status.ok()) status = TakeShareOf(rule, step, has, options, part);
  if (status.ok()) status = TakeMemoryOf(rule, step, has, options, part);
  if (!status.ok()) return status;
  return std::optional(TermsText(step, part, device));
}

}  // namespace gpushared::slurm
