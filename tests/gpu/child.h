// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_CHILD_H_
#define GPUSHARED_TESTS_GPU_CHILD_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace gpushared::testing {

// A program of its own that is asked one thing at a time (gpu_ops.cpp has the questions).
//
// Thread-compatible.
class Child {
 public:
  // Starts `program`, a file beside this one, with a scheduling class or with none. Throws
  // std::runtime_error when it cannot be started.
  Child(const std::string& program, const std::string& scheduling_class);
  // Closes its input and waits for it to end, which it then does.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The numbers of its answer. Throws std::runtime_error with the program's name, the question and
  // the reason when it refuses or is gone.
  std::vector<double> Ask(const std::string& question);
  // SIGKILL, whatever it does.
  void Kill();

 private:
  const std::string program_;
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_CHILD_H_
