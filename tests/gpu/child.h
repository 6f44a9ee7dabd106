// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_CHILD_H_
#define GPUSHARED_TESTS_GPU_CHILD_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace gpushared::testing {

// A program of its own that is asked one thing at a time (gpu_ops.cpp has the questions).
//
// Thread-compatible.
class Child {
 public:
  // Starts `program`, a file beside this one, with a scheduling class or with none. Throws
  // std::runtime_error when it cannot be started. `limit`: the time for an answer.
  Child(const std::string& program, const std::string& scheduling_class,
        std::chrono::seconds limit);
  // Closes its input, at which it ends. One that does not is killed, and left behind where even
  // that does not end it, as inside of a driver that hangs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The numbers of its answer. Throws std::runtime_error with the program's name, the question and
  // the reason when it rejects, is gone, or has not answered in time. Then it is killed.
  std::vector<double> Ask(const std::string& question);
  // It has died, or was killed: it answers nothing more.
  bool is_gone() const { return is_gone_; }
  // SIGKILL, whatever it does.
  void Kill();

 private:
  bool EndsWithin(std::chrono::milliseconds time);
  std::string Line(const std::string& question);
  std::string Words(const std::string& question, const std::string& why) const;

  const std::string program_;
  const std::chrono::seconds limit_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  bool is_gone_ = false;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_CHILD_H_
