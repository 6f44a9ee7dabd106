// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CONFIG_SUBJECT_H_
#define GPUSHARED_SERVER_CONFIG_SUBJECT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server {

inline constexpr std::size_t kSubjectsMax = 64;  // A list has at most so many.

// Whom a rule is about.
//
// Thread-compatible value.
struct Subject {
  enum class Kind : std::uint8_t { kUser, kGroup, kEveryone };
  Kind kind = Kind::kEveryone;
  std::uint32_t id = 0;            // uid or gid; unused for kEveryone.
  std::string label = "everyone";  // For people: "user 'alice' (uid 1000)".
};

// The subject that `kind` ("user", "uid", "group" or "gid") and `value` name. Names are looked up
// on this machine.
Result<Subject> SubjectNamed(std::string_view kind, const std::string& value);

// "user:alice,gid:4242" has two; "everyone" is one, too. Empty: nobody.
Result<std::vector<Subject>> ParseSubjects(std::string_view list);

// Their labels, for people; "nobody" for none.
std::string SubjectsText(const std::vector<Subject>& subjects);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_SUBJECT_H_
