// SPDX-License-Identifier: Apache-2.0
// Command line of the samples: --name value pairs, each with a default and a description.

#ifndef GPUSHARED_SAMPLES_LANGUAGE_MODEL_OPTIONS_H_
#define GPUSHARED_SAMPLES_LANGUAGE_MODEL_OPTIONS_H_

#include <string>
#include <vector>

#include "gpushared/client.h"

namespace samples {

class Options {
 public:
  struct Option {
    std::string name;   // Such as "--steps".
    std::string value;  // The default, or the user's value.
    std::string help;
  };

  explicit Options(std::vector<Option> options) : options_(std::move(options)) {}

  // Returns false if the user asked for --help, which is then printed. Throws std::runtime_error
  // for an unknown option or a missing value.
  bool Parse(int argc, char** argv, const std::string& purpose);

  const std::string& Text(const std::string& name) const;
  // Throw std::runtime_error if the value is not a number in [least, most].
  double Number(const std::string& name, double least, double most) const;
  int Integer(const std::string& name, int least, int most) const;
  gpushared::SchedulingClass Class(const std::string& name) const;

 private:
  std::vector<Option> options_;
};

// Sleeps until this many seconds since 1970, and returns by how many seconds it woke too late: the
// wake-up latency of the system, or more if the moment had already passed. With 0, does not sleep.
double SleepUntilUnixTime(double seconds);

}  // namespace samples

#endif  // GPUSHARED_SAMPLES_LANGUAGE_MODEL_OPTIONS_H_
