// SPDX-License-Identifier: Apache-2.0
// Command-line parser of the programs. Wraps CLI11, because CLI11's own header adds 1.9 MB of code
// and 3 s of compile time to each file that includes it.

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

// Handle of an option of a program, valid as long as the program. Each setter returns the option so
// that calls can be chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option TypeName(const std::string& name) const;
  Option Required() const;
  Option Hidden() const;       // Omits the option from the help.
  Option ShowDefault() const;  // Shows the variable's current value in the help.
  // Sets the number of values that may follow the option.
  Option Expected(int count) const;
  Option Expected(int least, int most) const;
  Option TakeAll() const;  // Allows the option to be repeated.
  Option Delimiter(char delimiter) const;
  Option Needs(const Option& other) const;
  Option Excludes(const Option& other) const;

  // Restricts the values to these texts.
  Option OneOf(std::vector<std::string> allowed) const;
  // Restricts an int, unsigned or std::size_t to a range.
  template <typename Number>
  Option Range(Number least, Number most) const;
  // Restricts a double to a range. Exists because CLI11's own check accepts nan.
  Option Within(double least, double most) const;
  // `complaint` returns an error message, or an empty string if the text is valid.
  Option Check(std::function<std::string(const std::string& text)> complaint) const;

  std::size_t count() const;  // Number of values given.
  bool IsBare() const;        // Whether the option was given without a value.

 private:
  CLI::Option* option_;
};

// Handle of a command of a program, or of the program itself, valid as long as the program.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `names` without dashes declare a positional argument. Supports the types listed at the end of
  // command_line.cpp.
  template <typename Value>
  Option AddOption(const std::string& names, Value& value, const std::string& help) const;
  Option AddFlag(const std::string& name, bool& value, const std::string& help) const;
  Command AddCommand(const std::string& name, const std::string& help) const;

  void RequireCommand() const;
  void FallThrough() const;  // Passes unknown options on to the parent command.
  void SetFooter(const std::string& text) const;
  // Hides the command from the help and accepts all arguments that follow its name.
  void HideAndTakeAll() const;
  // Called during parsing if the command was given. May call Reject.
  void OnUse(std::function<void()> callback) const;

  // Name of the first subcommand that was given.
  std::string Chosen() const;

 protected:
  CLI::App* app_;
};

// Why a program exits after parsing: the command line requests help or the version, or is invalid.
struct Stop {
  int code = 0;  // Nonzero after a usage error.
  std::string output, errors;
  std::string why;  // The message of `errors` without the usage hint.

  int Print() const;  // Prints to stdout and stderr. Returns the code.
};

class Program : public Command {
 public:
  explicit Program(const std::string& help, const std::string& name = "");
  ~Program();

  void SetVersion(const std::string& text) const;
  // Parses the arguments into the variables. `arguments` begin with the name of the program.
  std::optional<Stop> Parse(std::span<const char* const> arguments) const;

 private:
  explicit Program(std::unique_ptr<CLI::App> app);

  std::unique_ptr<CLI::App> owned_;
};

// Makes Parse fail with this message.
[[noreturn]] void Reject(const std::string& why);

}  // namespace gpushared::command_line

#endif  // GPUSHARED_COMMON_COMMAND_LINE_COMMAND_LINE_H_
