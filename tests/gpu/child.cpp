// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kEndMax{5'000};

}  // namespace

Child::Child(const std::string& program, const std::string& scheduling_class,
             std::chrono::seconds limit)
    : program_(program), limit_(limit) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / program;
  std::array<int, 2> questions{}, answers{};
  if (::pipe2(questions.data(), O_CLOEXEC) != 0 || ::pipe2(answers.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(program + ": no pipe: " + std::strerror(errno));
  // Writing to a child that has exited must not end this process.
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
  to_ = questions[1];
  from_ = answers[0];
}

Child::~Child() {
  ::close(to_);
  ::close(from_);
  if (EndsWithin(kEndMax)) return;
  Kill();
  (void)EndsWithin(kEndMax);
}

bool Child::EndsWithin(milliseconds time) {
  const auto end = Clock::now() + time;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

void Child::Kill() {
  ::kill(pid_, SIGKILL);
  is_gone_ = true;
}

std::string Child::Words(const std::string& question, const std::string& why) const {
  return program_ + ": " + question + ": " + why;
}

std::string Child::Line(const std::string& question) {
  std::string line;
  std::array<char, 65536> piece{};
  for (const auto end = Clock::now() + limit_;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    pollfd waited{.fd = from_, .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? ::poll(&waited, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      Kill();
      throw std::runtime_error(
          Words(question, "no answer within " + std::to_string(limit_.count()) + " s"));
    }
    const ssize_t count = ::read(from_, piece.data(), piece.size());
    if (count <= 0) {
      is_gone_ = true;
      throw std::runtime_error(Words(question, "the program is gone"));
    }
    line.append(piece.data(), static_cast<std::size_t>(count));
    if (line.back() == '\n') return line;
  }
}

std::vector<double> Child::Ask(const std::string& question) {
  const std::string asked = question + '\n';
  if (is_gone_ || ::write(to_, asked.data(), asked.size()) != static_cast<ssize_t>(asked.size())) {
    is_gone_ = true;
    throw std::runtime_error(Words(question, "the program is gone"));
  }
  std::istringstream words(Line(question));
  std::string verdict;
  words >> verdict;
  if (verdict != "ok") {
    std::string why;
    std::getline(words >> std::ws, why);
    throw std::runtime_error(Words(question, why));
  }
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace gpushared::testing
