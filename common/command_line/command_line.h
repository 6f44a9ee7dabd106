// SPDX-License-Identifier: Apache-2.0
// What a program reads from its command line. CLI11 does the work behind this header. Its own
// header leaves 1.9 MB of code in each file that includes it, which takes 3 s to compile.

#ifndef GPUSHARED_COMMON_COMMAND_LINE_COMMAND_LINE_H_
#define GPUSHARED_COMMON_COMMAND_LINE_COMMAND_LINE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gpushared::command_line {

// Names an option of a program, and is valid as long as the program. Each step returns the option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option TypeName(const std::string& name) const;
  Option Required() const;
  Option Hidden() const;       // Help does not show it.
  Option ShowDefault() const;  // Help shows the value that the variable has now.
  // How many values may follow it.
  Option Expected(int count) const;
  Option Expected(int least, int most) const;
  Option TakeAll() const;  // It may be repeated.
  Option Delimiter(char delimiter) const;
  Option Needs(const Option& other) const;
  Option Excludes(const Option& other) const;

  // Each value must be one of these texts.
  Option OneOf(std::vector<std::string> allowed) const;
  // int, unsigned and std::size_t.
  template <typename Number>
  Option Range(Number least, Number most) const;
  // The same for double; CLI11's own check lets nan through.
  Option Within(double least, double most) const;
  // `complaint` is empty where the text is good.
  Option Check(std::function<std::string(const std::string& text)> complaint) const;

  std::size_t count() const;  // How many values it was given.
  bool IsBare() const;        // It was given without a value.

 private:
  CLI::Option* option_;
};

// Names a command of a program, or the program itself, and is valid as long as the program.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `names` without dashes: a value by its position. The types are those at the end of
  // command_line.cpp.
  template <typename Value>
  Option AddOption(const std::string& names, Value& value, const std::string& help) const;
  Option AddFlag(const std::string& name, bool& value, const std::string& help) const;
  Command AddCommand(const std::string& name, const std::string& help) const;

  void RequireCommand() const;
  void FallThrough() const;  // It leaves to its parent what it does not know.
  void SetFooter(const std::string& text) const;
  // For a name that help does not show: takes whatever stands behind it.
  void HideAndTakeAll() const;
  // Called while the arguments are parsed, if the command was given. It may Reject.
  void OnUse(std::function<void()> callback) const;

  // The first command that was given under this one.
  std::string Chosen() const;

 protected:
  CLI::App* app_;
};

// Why a program goes on no further: its command line asks for help or its version, or makes no
// sense.
struct Stop {
  int code = 0;  // Zero unless it makes no sense.
  std::string output, errors;
  std::string why;  // The sentence of `errors` alone.

  int Print() const;  // To stdout and stderr. The code.
};

class Program : public Command {
 public:
  explicit Program(const std::string& help, const std::string& name = "");
  ~Program();

  void SetVersion(const std::string& text) const;
  // Fills in the variables. `arguments` begin with the program's own name.
  std::optional<Stop> Parse(std::span<const char* const> arguments) const;

 private:
  explicit Program(std::unique_ptr<CLI::App> app);

  std::unique_ptr<CLI::App> owned_;
};

// Ends Parse with this sentence.
[[noreturn]] void Reject(const std::string& why);

}  // namespace gpushared::command_line

#endif  // GPUSHARED_COMMON_COMMAND_LINE_COMMAND_LINE_H_
