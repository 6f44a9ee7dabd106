// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace gpushared::testing {

Child::Child(const std::string& program, const std::string& scheduling_class) : program_(program) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / program;
  std::array<int, 2> questions{}, answers{};
  if (::pipe2(questions.data(), O_CLOEXEC) != 0 || ::pipe2(answers.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(program + ": no pipe: " + std::strerror(errno));
  // One that is gone answers nothing; it must not end us.
  ::signal(SIGPIPE, SIG_IGN);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error(program + ": no process: " + std::strerror(errno));
  if (pid_ == 0) {
    ::dup2(questions[0], STDIN_FILENO);
    ::dup2(answers[1], STDOUT_FILENO);
    ::execl(path.c_str(), path.c_str(),
            scheduling_class.empty() ? nullptr : scheduling_class.c_str(), nullptr);
    std::fprintf(stderr, "%s: %s\n", path.c_str(), std::strerror(errno));
    ::_exit(127);
  }
  ::close(questions[0]);
  ::close(answers[1]);
  to_ = ::fdopen(questions[1], "w");
  from_ = ::fdopen(answers[0], "r");
}

Child::~Child() {
  std::fclose(to_);
  std::fclose(from_);
  ::waitpid(pid_, nullptr, 0);
}

void Child::Kill() { ::kill(pid_, SIGKILL); }

std::vector<double> Child::Ask(const std::string& question) {
  const auto fail = [&](const std::string& why) -> std::runtime_error {
    return std::runtime_error(program_ + ": " + question + ": " + why);
  };
  if (std::fprintf(to_, "%s\n", question.c_str()) < 0 || std::fflush(to_) != 0)
    throw fail("the program is gone");
  char* line = nullptr;
  std::size_t room = 0;
  const ssize_t length = ::getline(&line, &room, from_);
  std::string text(line == nullptr || length < 0 ? "" : line);
  std::free(line);
  if (length < 0) throw fail("the program is gone");
  std::istringstream words(text);
  std::string verdict;
  words >> verdict;
  if (verdict != "ok") {
    std::string why;
    std::getline(words >> std::ws, why);
    throw fail(why);
  }
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace gpushared::testing
