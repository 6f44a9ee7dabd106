// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/command_line.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/command_line/nearest.h"

#include <CLI/CLI.hpp>

namespace gpushared::command_line {

Option Option::TypeName(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Option Option::Required() const {
  option_->required();
  return *this;
}

Option Option::Hidden() const {
  option_->group("");
  return *this;
}

Option Option::ShowDefault() const {
  option_->capture_default_str();
  return *this;
}

Option Option::Expected(int count) const {
  option_->expected(count);
  return *this;
}

Option Option::Expected(int least, int most) const {
  option_->expected(least, most);
  return *this;
}

Option Option::TakeAll() const {
  option_->take_all();
  return *this;
}

Option Option::Delimiter(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}

Option Option::Needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}

Option Option::Excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}

Option Option::OneOf(std::vector<std::string> allowed) const {
  option_->check(CLI::IsMember(std::move(allowed)));
  return *this;
}

template <typename Number>
Option Option::Range(Number least, Number most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::Within(double least, double most) const {
  char range[64];
  std::snprintf(range, sizeof range, "%g to %g", least, most);
  const auto check = [least, most, range = std::string(range)](const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_within =
        error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
    return is_within ? std::string() : "Value " + text + " not in range " + range;
  };
  option_->check(CLI::Validator(check, std::string("FLOAT in ") + range));
  return *this;
}

Option Option::Check(std::function<std::string(const std::string& text)> complaint) const {
  option_->check(std::move(complaint));
  return *this;
}

std::size_t Option::count() const { return option_->count(); }

// CLI11 represents this as a single empty text.
bool Option::IsBare() const { return option_->count() == 1 && option_->results().front().empty(); }

template <typename Value>
Option Command::AddOption(const std::string& names, Value& value, const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::AddFlag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Command Command::AddCommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}

void Command::RequireCommand() const { app_->require_subcommand(1); }

void Command::FallThrough() const { app_->fallthrough(); }

void Command::SetFooter(const std::string& text) const { app_->footer(text); }

void Command::HideAndTakeAll() const { app_->group("")->fallthrough(false)->prefix_command(); }

void Command::OnUse(std::function<void()> callback) const { app_->callback(std::move(callback)); }

std::string Command::Chosen() const { return app_->get_subcommands().front()->get_name(); }

namespace {

// Explains a word in place of a command: mentions the last command, or the program.
std::string WhyNoCommand(CLI::App& program) {
  CLI::App* at = &program;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  const std::vector<CLI::App*> below = at->get_subcommands([](CLI::App*) { return true; });
  if (below.empty()) return "";
  std::vector<std::string> names;
  for (const CLI::App* each : below) {
    if (!each->get_group().empty()) names.push_back(each->get_name());
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string of = at == &program ? "" : " of '" + at->get_name() + "'";
  for (const std::string& word : program.remaining(true)) {
    if (word.empty() || word.front() == '-') continue;
    std::string why = "there is no command '" + word + "'" + of + DidYouMean(word, known);
    if (why.back() == '?') return why;
    why += "; there are ";
    for (std::size_t i = 0; i < names.size(); ++i) why += (i == 0 ? "" : ", ") + names[i];
    return why;
  }
  return "";
}

}  // namespace

int Stop::Print() const {
  std::fputs(output.c_str(), stdout);
  std::fputs(errors.c_str(), stderr);
  return code;
}

Program::Program(const std::string& help, const std::string& name)
    : Program(std::make_unique<CLI::App>(help, name)) {}

Program::Program(std::unique_ptr<CLI::App> app) : Command(app.get()), owned_(std::move(app)) {}

Program::~Program() = default;

void Program::SetVersion(const std::string& text) const {
  app_->set_version_flag("--version", text);
}

std::optional<Stop> Program::Parse(std::span<const char* const> arguments) const {
  try {
    app_->parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& error) {
    std::ostringstream output, errors;
    const int code = app_->exit(error, output, errors);
    Stop stop{.code = code, .output = output.str(), .errors = errors.str(), .why = error.what()};
    if (code == 0 || app_->get_require_subcommand_min() == 0) return stop;
    if (std::string why = WhyNoCommand(*app_); !why.empty()) {
      stop.errors = why + "\nRun with --help for more information.\n";
      stop.why = std::move(why);
    }
    return stop;
  }
  return std::nullopt;
}

void Reject(const std::string& why) { throw CLI::ValidationError(why); }

// Types of the programs' options and positional arguments.
using std::string, std::vector;
template Option Command::AddOption(const string&, string&, const string&) const;
template Option Command::AddOption(const string&, int&, const string&) const;
template Option Command::AddOption(const string&, double&, const string&) const;
template Option Command::AddOption(const string&, std::uint32_t&, const string&) const;
template Option Command::AddOption(const string&, std::uint64_t&, const string&) const;
template Option Command::AddOption(const string&, vector<string>&, const string&) const;
template Option Command::AddOption(const string&, vector<double>&, const string&) const;
template Option Command::AddOption(const string&, vector<std::uint32_t>&, const string&) const;

template Option Option::Range(int, int) const;
template Option Option::Range(unsigned, unsigned) const;
template Option Option::Range(std::size_t, std::size_t) const;

}  // namespace gpushared::command_line
