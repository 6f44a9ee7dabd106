// SPDX-License-Identifier: Apache-2.0
// Parses a program's command line. CLI11 is hidden behind this header, because its own header adds
// 1.9 MB of code to each file that includes it, which takes 3 s to compile.

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

// Reference to an option, valid as long as the program. Each call returns the option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option TypeName(const std::string& name) const;
  Option Required() const;
  Option Hidden() const;       // Not listed in the help.
  Option ShowDefault() const;  // Shows the current value of the variable in the help.
  // Maximum number of values.
  Option Expected(int count) const;
  Option Expected(int least, int most) const;
  Option TakeAll() const;  // May be repeated.
  Option Delimiter(char delimiter) const;
  Option Needs(const Option& other) const;
  Option Excludes(const Option& other) const;

  // Each value must be one of these texts.
  Option OneOf(std::vector<std::string> allowed) const;
  // int, unsigned and std::size_t.
  template <typename Number>
  Option Range(Number least, Number most) const;
  // Same for double; CLI11's own check accepts nan.
  Option Within(double least, double most) const;
  // `complaint` returns an empty text for valid values.
  Option Check(std::function<std::string(const std::string& text)> complaint) const;

  std::size_t count() const;  // Number of values given.
  bool IsBare() const;        // Given without a value.

 private:
  CLI::Option* option_;
};

// Reference to a command of a program, or to the program itself, valid as long as the program.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `names` without dashes: a positional argument. The supported types are listed at the end of
  // command_line.cpp.
  template <typename Value>
  Option AddOption(const std::string& names, Value& value, const std::string& help) const;
  Option AddFlag(const std::string& name, bool& value, const std::string& help) const;
  Command AddCommand(const std::string& name, const std::string& help) const;

  void RequireCommand() const;
  void FallThrough() const;  // Passes unknown arguments to its parent.
  void SetFooter(const std::string& text) const;
  // Hides the command from the help and accepts arbitrary arguments after it.
  void HideAndTakeAll() const;
  // Called during parsing if the command was given. May call Reject.
  void OnUse(std::function<void()> callback) const;

  // First command given under this one.
  std::string Chosen() const;

 protected:
  CLI::App* app_;
};

// Reason why a program ends after parsing: help or version was requested, or the command line is
// invalid.
struct Stop {
  int code = 0;  // Nonzero if the command line is invalid.
  std::string output, errors;
  std::string why;  // Message from `errors` only.

  int Print() const;  // Prints to stdout and stderr and returns the code.
};

class Program : public Command {
 public:
  explicit Program(const std::string& help, const std::string& name = "");
  ~Program();

  void SetVersion(const std::string& text) const;
  // Sets the variables. `arguments` begin with the program's own name.
  std::optional<Stop> Parse(std::span<const char* const> arguments) const;

 private:
  explicit Program(std::unique_ptr<CLI::App> app);

  std::unique_ptr<CLI::App> owned_;
};

// Ends Parse with this message.
[[noreturn]] void Reject(const std::string& why);

}  // namespace gpushared::command_line

#endif  // GPUSHARED_COMMON_COMMAND_LINE_COMMAND_LINE_H_
