// SPDX-License-Identifier: Apache-2.0
#include "server/config/subject.h"

#include <grp.h>
#include <pwd.h>

#include <cstddef>
#include <utility>

#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

constexpr std::size_t kNameBufferBytes = std::size_t{64} << 10;

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

Result<std::uint32_t> UserId(const std::string& name) {
  std::vector<char> buffer(kNameBufferBytes);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return Invalid("user '" + Escaped(name) + "' does not exist here");
  }
  return std::uint32_t{found->pw_uid};
}

Result<std::uint32_t> GroupId(const std::string& name) {
  std::vector<char> buffer(kNameBufferBytes);
  group entry{};
  group* found = nullptr;
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return Invalid("group '" + Escaped(name) + "' does not exist here");
  }
  return std::uint32_t{found->gr_gid};
}

}  // namespace

Result<Subject> SubjectNamed(std::string_view kind, const std::string& value) {
  if (kind == "uid" || kind == "gid") {
    const Result<std::uint64_t> id = ParseCount(value, 0, 0xffff'fffeU);
    if (!id.ok()) return id.status();
    return Subject{.kind = kind == "uid" ? Subject::Kind::kUser : Subject::Kind::kGroup,
                   .id = static_cast<std::uint32_t>(*id),
                   .label = std::string(kind) + " " + value};
  }
  if (kind != "user" && kind != "group") {
    return Invalid("asked for '" + Escaped(kind) + "', allowed: user, uid, group and gid");
  }
  const bool is_user = kind == "user";
  const Result<std::uint32_t> id = is_user ? UserId(value) : GroupId(value);
  if (!id.ok()) return id.status();
  return Subject{.kind = is_user ? Subject::Kind::kUser : Subject::Kind::kGroup,
                 .id = *id,
                 .label = std::string(kind) + " '" + Escaped(value) + "' (" +
                          (is_user ? "uid " : "gid ") + std::to_string(*id) + ")"};
}

Result<std::vector<Subject>> ParseSubjects(std::string_view list) {
  std::vector<Subject> subjects;
  if (list.empty()) return subjects;
  for (const std::string_view part : SplitAtCommas(list)) {
    if (subjects.size() == kSubjectsMax) {
      return Invalid("more than " + std::to_string(kSubjectsMax) + " users and groups");
    }
    const std::size_t colon = part.find(':');
    if (part == "everyone") {
      subjects.emplace_back();
      continue;
    }
    if (colon == std::string_view::npos) {
      return Invalid("asked for '" + Escaped(part) +
                     "', allowed: everyone and user:NAME, uid:NUMBER, group:NAME, gid:NUMBER");
    }
    Result<Subject> subject =
        SubjectNamed(part.substr(0, colon), std::string(part.substr(colon + 1)));
    if (!subject.ok()) return subject.status();
    subjects.push_back(std::move(*subject));
  }
  return subjects;
}

std::string SubjectsText(const std::vector<Subject>& subjects) {
  std::string text;
  for (const Subject& each : subjects) text += (text.empty() ? "" : ", ") + each.label;
  return text.empty() ? "none" : text;
}

}  // namespace gpushared::server
