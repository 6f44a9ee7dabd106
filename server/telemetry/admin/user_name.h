// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_USER_NAME_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_USER_NAME_H_

#include <map>
#include <string>

namespace gpushared::admin {

// Names of users on this machine, each looked up once. A lookup may block, because it may ask a
// directory service; the server therefore reports only numbers. Thread-compatible.
class UserNames {
 public:
  // Returns the name, or `uid` if it has none.
  const std::string& Get(const std::string& uid);

 private:
  std::map<std::string, std::string> names_;  // By uid.
};

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_USER_NAME_H_
