// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SERVER_OTHER_USER_H_
#define GPUSHARED_TESTS_SERVER_OTHER_USER_H_

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace gpushared::testing {

// Runs `body` in a forked child; what it returns is the child's exit code, -1 when the child did
// not exit.
inline int InAProcess(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// As user nobody. Needs root.
inline int AsNobody(const std::function<int()>& body) {
  constexpr uid_t kNobody = 65534;
  return InAProcess([&body] {
    const bool changed =
        ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
    return changed ? body() : 99;
  });
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SERVER_OTHER_USER_H_
