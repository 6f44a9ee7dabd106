// SPDX-License-Identifier: Apache-2.0
// Runs an action while a call waits.

#ifndef GPUSHARED_TESTS_CLIENT_LIB_ASLEEP_H_
#define GPUSHARED_TESTS_CLIENT_LIB_ASLEEP_H_

#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "tests/support/read_file.h"

namespace gpushared::testing {

// Starts a thread that acts once the calling thread sleeps in a system call.
inline std::thread OnceAsleep(std::function<void()> act) {
  return std::thread([path = "/proc/self/task/" + std::to_string(::gettid()) + "/stat", act] {
    std::string stat;  // "number (name) state ..."
    do {
      std::this_thread::yield();
      stat = ReadFile(path);
    } while (stat.substr(stat.rfind(')') + 2, 1) != "S");
    act();
  });
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CLIENT_LIB_ASLEEP_H_
