// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/admin/user_name.h"

#include <pwd.h>

#include <charconv>
#include <cstddef>
#include <system_error>
#include <vector>

namespace gpushared::admin {
namespace {

std::string LookUp(const std::string& uid) {
  uid_t number = 0;
  const auto [end, error] = std::from_chars(uid.data(), uid.data() + uid.size(), number);
  if (error != std::errc() || end != uid.data() + uid.size()) return uid;
  std::vector<char> buffer(std::size_t{16} << 10);
  passwd entry{};
  passwd* found = nullptr;
  const bool is_known =
      ::getpwuid_r(number, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
  return is_known ? found->pw_name : uid;
}

}  // namespace

const std::string& UserNames::Get(const std::string& uid) {
  auto name = names_.find(uid);
  if (name == names_.end()) name = names_.emplace(uid, LookUp(uid)).first;
  return name->second;
}

}  // namespace gpushared::admin
