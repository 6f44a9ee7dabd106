// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CONFIG_SUBJECT_H_
#define GPUSHARED_SERVER_CONFIG_SUBJECT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server {

inline constexpr std::size_t kSubjectsMax = 64;  // Limit of subjects in a list.

// The clients to which a rule applies.
struct Subject {
  enum class Kind : std::uint8_t { kUser, kGroup, kEveryone };
  Kind kind = Kind::kEveryone;
  std::uint32_t id = 0;            // uid or gid; unused for kEveryone.
  std::string label = "everyone";  // Human-readable: "user 'alice' (uid 1000)".
};

// Returns the subject for `kind` ("user", "uid", "group" or "gid") and `value`. Names are looked up
// on this machine.
Result<Subject> SubjectNamed(std::string_view kind, const std::string& value);

// Parses "user:alice,gid:4242" into two subjects; "everyone" is a subject, too. Empty text gives no
// subject.
Result<std::vector<Subject>> ParseSubjects(std::string_view list);

// Returns human-readable labels; "none" if the list is empty.
std::string SubjectsText(const std::vector<Subject>& subjects);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_SUBJECT_H_
