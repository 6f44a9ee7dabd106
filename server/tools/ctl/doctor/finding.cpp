// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/doctor/finding.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace gpushared::server::doctor {
namespace {

constexpr std::size_t kAboutWidth = 14;

const char* GetName(Finding::State state) {
  switch (state) {
    case Finding::State::kOk:
      return "ok";
    case Finding::State::kNote:
      return "note";
    case Finding::State::kProblem:
      break;
  }
  return "problem";
}

// Replaces control characters, because paths and names come from untrusted files.
std::string Printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, '?');
  return text;
}

std::string Padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

}  // namespace

bool HasProblem(const Findings& findings) {
  return std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.state == Finding::State::kProblem; });
}

std::string Report(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const bool is_problem = finding.state == Finding::State::kProblem;
    text += Padded(is_problem ? "PROBLEM" : GetName(finding.state), 8) +
            Padded(finding.about, kAboutWidth) + Printable(finding.what) + "\n";
    if (!finding.advice.empty()) {
      text += std::string(8 + kAboutWidth, ' ') + "-> " + Printable(finding.advice) + "\n";
    }
  }
  return text;
}

nlohmann::json AsJson(const Findings& findings) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"about", finding.about},
                      {"state", GetName(finding.state)},
                      {"what", Printable(finding.what)},
                      {"advice", Printable(finding.advice)}});
  }
  const auto problems = std::ranges::count_if(
      findings, [](const Finding& it) { return it.state == Finding::State::kProblem; });
  return {{"checks", std::move(checks)}, {"problems", problems}};
}

}  // namespace gpushared::server::doctor
