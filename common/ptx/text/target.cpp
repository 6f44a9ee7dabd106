// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/target.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "common/ptx/text/lexer.h"

namespace gpushared::ptx {
namespace {

// Last minor version of each major version.
constexpr std::array kLastMinors = {0u, 5u, 3u, 2u, 3u, 1u, 5u, 8u, 8u, 5u};

struct KnownTarget {
  std::string_view name;
  std::uint32_t architecture;
  std::uint32_t version_least;  // 78 for 7.8.
};
// Pairs from the PTX ISA's release notes and the behaviour of ptxas.
constexpr auto kTargets = std::to_array<KnownTarget>({
    {"sm_10", 10, 10},    {"sm_100", 100, 86},  {"sm_100a", 100, 86}, {"sm_100f", 100, 88},
    {"sm_103", 103, 88},  {"sm_103a", 103, 88}, {"sm_103f", 103, 88}, {"sm_11", 11, 10},
    {"sm_110", 110, 90},  {"sm_110a", 110, 90}, {"sm_110f", 110, 90}, {"sm_12", 12, 12},
    {"sm_120", 120, 87},  {"sm_120a", 120, 87}, {"sm_120f", 120, 88}, {"sm_121", 121, 88},
    {"sm_121a", 121, 88}, {"sm_121f", 121, 88}, {"sm_13", 13, 12},    {"sm_20", 20, 20},
    {"sm_21", 21, 20},    {"sm_30", 30, 30},    {"sm_32", 32, 40},    {"sm_35", 35, 31},
    {"sm_37", 37, 41},    {"sm_50", 50, 40},    {"sm_52", 52, 41},    {"sm_53", 53, 42},
    {"sm_60", 60, 50},    {"sm_61", 61, 50},    {"sm_62", 62, 50},    {"sm_70", 70, 60},
    {"sm_72", 72, 61},    {"sm_75", 75, 63},    {"sm_80", 80, 70},    {"sm_86", 86, 71},
    {"sm_87", 87, 74},    {"sm_88", 88, 73},    {"sm_89", 89, 78},    {"sm_90", 90, 78},
    {"sm_90a", 90, 80},
});
static_assert(std::ranges::is_sorted(kTargets, {}, &KnownTarget::name));

// Returns 78 for "7.8" and "7.80"; nothing for an invalid version.
std::optional<std::uint32_t> GetNumber(std::string_view version) {
  const std::size_t dot = version.find('.');
  const bool is_number = dot != std::string_view::npos && dot != 0 && dot + 1 < version.size() &&
                         version.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!is_number || dot > 3) return std::nullopt;
  const auto major = static_cast<std::uint32_t>(std::stoul(std::string(version.substr(0, dot))));
  return major * 10 + static_cast<std::uint32_t>(version[dot + 1] - '0');
}

bool IsOption(std::string_view word) {
  return word == "debug" || word == "texmode_unified" || word == "texmode_independent" ||
         word == "map_f64_to_f32";
}

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

}  // namespace

bool IsKnownVersion(std::string_view version) {
  const std::optional<std::uint32_t> number = GetNumber(version);
  return number && *number >= 10 && *number / 10 < kLastMinors.size() &&
         *number % 10 <= kLastMinors[*number / 10];
}

std::string_view GetVersion(std::string_view text) {
  Lexer lexer(text);
  if (lexer.Next().text != ".version") return {};
  const Token version = lexer.Next();
  return version.kind == Token::Kind::kNumber ? version.text : std::string_view();
}

Status CheckTarget(const Module& module, std::uint32_t newest_architecture) {
  if (!IsKnownVersion(module.version)) {
    return Invalid("Unsupported .version " + module.version + "; current version is '" +
                   std::string(kNewestVersion) + "'");
  }
  const std::uint32_t version = GetNumber(module.version).value_or(0);
  std::string_view rest = module.target;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    if (IsOption(word)) continue;
    std::string name(word);
    if (name.starts_with("compute_")) name.replace(0, std::string_view("compute_").size(), "sm_");
    const auto* const found = std::ranges::lower_bound(kTargets, name, {}, &KnownTarget::name);
    if (found == kTargets.end() || found->name != name) {
      return Invalid("Unsupported .target '" + std::string(word) + "'");
    }
    if (version < found->version_least) {
      return Invalid("PTX .version " + module.version + " does not support .target " +
                     std::string(word));
    }
    if (found->architecture > newest_architecture) {
      return Invalid(".target " + std::string(word) +
                     " is newer than the device, which runs up to sm_" +
                     std::to_string(newest_architecture));
    }
  }
  return {};
}

}  // namespace gpushared::ptx
