// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/command_line.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/command_line/nearest.h"

#include <CLI/CLI.hpp>

namespace gpushared::command_line {
namespace {

constexpr std::size_t kHelpColumns = 100;

// Breaks the text at blanks into lines of at most `width` characters.
std::string Wrapped(const std::string& text, std::size_t width) {
  std::string wrapped;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; column += word.size()) {
    if (column > 0) {
      const bool fits = column + 1 + word.size() <= width;
      wrapped += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    wrapped += word;
  }
  return wrapped;
}

// Formats the help in at most kHelpColumns columns, because CLI11 does not break lines.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return WithEnd(Wrapped(CLI::Formatter::make_description(app), kHelpColumns));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_display_name(true),
                             InColumn(command->get_description()), get_column_width());
    return out.str();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return InColumn(option->get_description());
  }
  std::string make_footer(const CLI::App* app) const override {
    return WithEnd(Wrapped(app->get_footer(), kHelpColumns));
  }

 private:
  static std::string WithEnd(const std::string& text) { return text.empty() ? "" : text + "\n"; }
  std::string InColumn(const std::string& text) const {
    return Wrapped(text, kHelpColumns - get_column_width());
  }
};

}  // namespace

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

// CLI11 records an option without a value as one empty string.
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

// Returns the error message for an unknown command after `program` or after its last known command;
// "" if there is none.
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
    : Program(std::make_unique<CLI::App>(help, name)) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_help_flag("-h,--help", "this help");
}

Program::Program(std::unique_ptr<CLI::App> app) : Command(app.get()), owned_(std::move(app)) {}

Program::~Program() = default;

void Program::SetVersion(const std::string& text) const {
  app_->set_version_flag("--version", text, "version of the program");
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

// The types of all options and positional arguments that the programs use.
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
