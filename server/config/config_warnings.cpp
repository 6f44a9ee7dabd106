// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_warnings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "ipc/share.h"
#include "scheduler/class_name.h"

namespace gpushared::server {
namespace {

// Warnings with their lines.
using Warnings = std::vector<std::pair<std::uint32_t, std::string>>;

// Returns whether `earlier` is known to match every client of `later`. Memberships of groups are
// not known here.
bool Covers(const Subject& earlier, const Subject& later) {
  return earlier.kind == Subject::Kind::kEveryone ||
         (earlier.kind == later.kind && earlier.id == later.id);
}

void FindUnreachable(std::span<const AccessRule> rules, Warnings& warnings) {
  for (std::size_t i = 1; i < rules.size(); ++i) {
    const auto earlier = rules.first(i);
    const auto found = std::ranges::find_if(
        earlier, [&](const AccessRule& rule) { return Covers(rule.who, rules[i].who); });
    if (found == earlier.end()) continue;
    warnings.emplace_back(rules[i].line, "the access rule for " + rules[i].label +
                                             " is never used: the one for " + found->label +
                                             " in line " + std::to_string(found->line) +
                                             " comes before it and applies to all its clients");
  }
}

// Warns about a rule for everyone that also restricts root, since operators usually mean it for
// other users only.
void FindLoweredRoot(std::span<const AccessRule> rules, Warnings& warnings) {
  for (const AccessRule& rule : rules) {
    if (rule.who.kind == Subject::Kind::kUser && rule.who.id == 0) return;  // Root.
    if (rule.who.kind != Subject::Kind::kEveryone) continue;
    if (rule.highest_class == scheduler::SchedulingClass::kHigh) return;
    warnings.emplace_back(
        rule.line,
        "the access rule for everyone also applies to root and the server's own user: they get at "
        "most class " +
            std::string(scheduler::ClassName(rule.highest_class)) +
            ", but class high without the rule; to keep that, add a rule for user = \"root\" "
            "before it");
    return;
  }
}

// Returns whether `one` is larger. False if one of them is a size and the other a fraction of a
// device, whose size is not known here.
bool IsAbove(const MemoryQuota& one, const MemoryQuota& other) {
  if ((one.fraction == 0) != (other.fraction == 0)) return false;
  return one.fraction == 0 ? one.bytes > other.bytes : one.fraction > other.fraction;
}

void CheckLimits(const Allowance& rule, const std::string& whose, Warnings& warnings) {
  const auto warn = [&](const std::string& key, const std::string& value, const std::string& than,
                        const std::string& bound, const char* effect) {
    warnings.emplace_back(rule.line, whose + ": " + key + " = " + value + " is " + effect +
                                         ", as " + than + " = " + bound);
  };
  if (rule.client_memory && IsAbove(*rule.client_memory, rule.memory)) {
    warn("client_memory", rule.client_memory->ToString(), "all its clients together have memory",
         rule.memory.ToString(), "more than one client can have");
  }
  if (rule.client_max_share && *rule.client_max_share > rule.max_share) {
    warn("client_max_share", ipc::ShareText(*rule.client_max_share),
         "all its clients together have max_share", ipc::ShareText(rule.max_share),
         "more than one client can have");
  }
  const MemoryQuota& guarantee = rule.client_memory ? *rule.client_memory : rule.memory;
  if (rule.memory_limit && rule.client_memory && IsAbove(guarantee, *rule.memory_limit)) {
    warn("memory_limit", rule.memory_limit->ToString(), "each client is guaranteed client_memory",
         guarantee.ToString(), "without effect");
  }
}

void CheckUsualShare(const Config& config, const Allowance& rule, const std::string& whose,
                     Warnings& warnings) {
  const std::uint32_t usual = config.defaults.client_max_share;
  if (usual == kSharePerMilleMax || rule.client_max_share || usual <= rule.max_share) {
    return;
  }
  warnings.emplace_back(rule.line,
                        whose + ": the server's client_max_share = " + ipc::ShareText(usual) +
                            " is more than one client can have, as all its clients together have "
                            "max_share = " +
                            ipc::ShareText(rule.max_share));
}

}  // namespace

std::vector<std::string> FindWarnings(const Config& config, std::string_view source) {
  Warnings warnings;
  FindUnreachable(config.access, warnings);
  FindLoweredRoot(config.access, warnings);
  for (const AccessRule& rule : config.access) {
    CheckLimits(rule, "access rule for " + rule.label, warnings);
    CheckUsualShare(config, rule, "access rule for " + rule.label, warnings);
  }
  for (const EndpointRule& rule : config.endpoints) {
    CheckLimits(rule, rule.label, warnings);
    CheckUsualShare(config, rule, rule.label, warnings);
  }
  std::ranges::stable_sort(warnings, {}, &Warnings::value_type::first);
  std::vector<std::string> texts;
  for (const auto& [line, text] : warnings) {
    texts.push_back(std::string(source) + " line " + std::to_string(line) + ": " + text);
  }
  return texts;
}

}  // namespace gpushared::server
