// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SERVER_OTHER_USER_H_
#define GPUSHARED_TESTS_SERVER_OTHER_USER_H_

#include <grp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace gpushared::testing {

// Runs `body` in a forked child and returns its result, which is the child's exit code, or -1 when
// the child did not exit.
inline int InAProcess(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Permanently switches this process to the user. Returns false if that is not allowed. For forked
// children.
inline bool BecomeUser(uid_t uid) {
  return ::setgroups(0, nullptr) == 0 && ::setgid(uid) == 0 && ::setuid(uid) == 0;
}

// Runs `body` as that user. Needs root.
inline int AsUser(uid_t uid, const std::function<int()>& body) {
  return InAProcess([&] { return BecomeUser(uid) ? body() : 99; });
}

inline constexpr uid_t kNobody = 65534;
inline int AsNobody(const std::function<int()>& body) { return AsUser(kNobody, body); }

// Makes only the calling thread act as that user for as long as this object is alive. Needs root.
class ActingAs {
 public:
  explicit ActingAs(uid_t uid) : is_acting_(Set(uid)) {}
  ~ActingAs() { Set(0); }
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

  bool is_acting() const { return is_acting_; }

 private:
  // Calls the kernel directly, because the C library's function would change all threads.
  static bool Set(uid_t uid) { return ::syscall(SYS_setresuid, -1, uid, -1) == 0; }

  const bool is_acting_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SERVER_OTHER_USER_H_
