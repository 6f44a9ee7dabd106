// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_FINDING_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_FINDING_H_

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server::doctor {

// Result of one check.
struct Finding {
  enum class State {
    kOk,
    kNote,     // For information only.
    kProblem,  // Something will not work.
  };
  State state = State::kOk;
  std::string about;   // Subject in one or two words: "driver", "server".
  std::string what;    // The finding as a sentence.
  std::string advice;  // Remedy for the user; may be empty.
};
using Findings = std::vector<Finding>;

inline Finding Ok(std::string about, std::string what) {
  return {Finding::State::kOk, std::move(about), std::move(what), {}};
}
inline Finding Note(std::string about, std::string what, std::string advice = {}) {
  return {Finding::State::kNote, std::move(about), std::move(what), std::move(advice)};
}
inline Finding Problem(std::string about, std::string what, std::string advice) {
  return {Finding::State::kProblem, std::move(about), std::move(what), std::move(advice)};
}

bool HasProblem(const Findings& findings);

// Formats human-readable text: one line per finding, followed by its advice.
std::string Report(const Findings& findings);
// Returns {"checks": [{"about", "state": "ok" | "note" | "problem", "what", "advice"}], "problems":
// n}
nlohmann::json AsJson(const Findings& findings);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_FINDING_H_
