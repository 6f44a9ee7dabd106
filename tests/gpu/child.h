// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_CHILD_H_
#define GPUSHARED_TESTS_GPU_CHILD_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace gpushared::testing {

// A child process that answers one question at a time (gpu_ops.cpp lists the questions).
//
// Thread-compatible.
class Child {
 public:
  // Starts `program`, a file in this program's directory, with or without a scheduling class.
  // Throws std::runtime_error if it cannot be started. `limit`: the time for an answer.
  Child(const std::string& program, const std::string& scheduling_class,
        std::chrono::seconds limit);
  // Closes the child's input, which makes it exit. A child that does not exit is killed, and
  // abandoned if even that does not end it, for example inside a driver that hangs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Returns the numbers of the answer. Throws std::runtime_error with the program's name, the
  // question and the reason if the child rejects the question, has exited, or does not answer in
  // time. A child that does not answer in time is killed.
  std::vector<double> Ask(const std::string& question);
  // Whether the child has exited or was killed, and thus cannot answer.
  bool is_gone() const { return is_gone_; }
  // Sends SIGKILL, regardless of what the child is doing.
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
