// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_SUBJECT_LOG_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_SUBJECT_LOG_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

namespace gpushared::kubernetes {

// Log for conditions that are checked repeatedly. A message is written only if it differs from the
// previous message about the same subject.
//
// Thread-compatible.
class SubjectLog {
 public:
  using Write = std::function<void(const std::string& message)>;
  explicit SubjectLog(Write write) : write_(std::move(write)) {}

  void Once(const std::string& about, const std::string& message) {
    if (std::exchange(last_[about], message) != message) write_(message);
  }
  void Always(const std::string& message) const { write_(message); }
  void Forget(const std::string& about) { last_.erase(about); }

 private:
  const Write write_;
  std::map<std::string, std::string> last_;  // By subject.
};

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_SUBJECT_LOG_H_
