// SPDX-License-Identifier: Apache-2.0
#include "samples/language_model/options.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace samples {

bool Options::Parse(int argc, char** argv, const std::string& purpose) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") {
      std::printf("%s\n\n", purpose.c_str());
      for (const Option& option : options_) {
        std::printf("  %-16s %s%s\n", option.name.c_str(), option.help.c_str(),
                    option.value.empty() ? "" : (" (" + option.value + ")").c_str());
      }
      return false;
    }
    Option* known = nullptr;
    for (Option& option : options_) {
      if (option.name == name) known = &option;
    }
    if (known == nullptr)
      throw std::runtime_error("unknown option '" + name + "'; --help lists them");
    if (i + 1 == argc) throw std::runtime_error("option '" + name + "' needs a value");
    known->value = argv[i + 1];
  }
  return true;
}

const std::string& Options::Text(const std::string& name) const {
  for (const Option& option : options_) {
    if (option.name == name) return option.value;
  }
  throw std::logic_error("option '" + name + "' was never declared");
}

double Options::Number(const std::string& name, double least, double most) const {
  const std::string& text = Text(name);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    throw std::runtime_error("option '" + name + "' is '" + text + "', allowed: a number from " +
                             std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

int Options::Integer(const std::string& name, int least, int most) const {
  const double value = Number(name, least, most);
  if (value != std::floor(value)) {
    throw std::runtime_error("option '" + name + "' is '" + Text(name) +
                             "', allowed: a whole number");
  }
  return static_cast<int>(value);
}

gpushared::SchedulingClass Options::Class(const std::string& name) const {
  const std::string& text = Text(name);
  if (text == "high") return gpushared::SchedulingClass::kHigh;
  if (text == "normal") return gpushared::SchedulingClass::kNormal;
  if (text == "low") return gpushared::SchedulingClass::kLow;
  throw std::runtime_error("option '" + name + "' is '" + text +
                           "', allowed: high, normal and low");
}

double SleepUntilUnixTime(double seconds) {
  if (seconds == 0) return 0;
  const std::chrono::duration<double> since_epoch(seconds);
  const std::chrono::system_clock::time_point moment(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(since_epoch));
  std::this_thread::sleep_until(moment);
  return std::chrono::duration<double>(std::chrono::system_clock::now() - moment).count();
}

}  // namespace samples
