// SPDX-License-Identifier: Apache-2.0
// Output of every benchmark: a description of the machine and a table of percentiles, as text and
// as JSON.

#ifndef GPUSHARED_TESTS_BENCH_REPORT_H_
#define GPUSHARED_TESTS_BENCH_REPORT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gpushared::testing {

// Thread-compatible.
class Samples {
 public:
  void Add(std::chrono::nanoseconds value) { Add(static_cast<double>(value.count())); }
  void Add(double value_ns) { values_ns_.push_back(value_ns); }
  // Returns a percentile in ns; `fraction` is in [0, 1]. Returns 0 if there are no samples.
  double Percentile(double fraction) const;
  std::size_t count() const { return values_ns_.size(); }

 private:
  std::vector<double> values_ns_;
};

// Thread-compatible.
class Report {
 public:
  explicit Report(std::string name) : name_(std::move(name)) {}

  // Adds a row of p50, p99 and maximum.
  void Add(const std::string& what, const Samples& samples);
  // Adds a row of one figure.
  void AddValue(const std::string& what, double value, const std::string& unit);
  // Prints the environment and the table to stdout.
  void Print() const;
  // Returns true if `path` is empty or was written.
  bool WriteJson(const std::string& path) const;

 private:
  struct Row {
    std::string what;
    bool is_value = false;
    double p50_ns = 0, p99_ns = 0, max_ns = 0;
    std::size_t samples = 0;
    double value = 0;
    std::string unit;
  };
  std::string name_;
  std::vector<Row> rows_;
};

// Returns a line for each of CPU model, cores, kernel, compiler and build type.
std::vector<std::string> Environment();

// Returns the result of `run`, or 1 if it throws; then prints the exception's message to stderr.
int RunProgram(const std::function<int()>& run);

// Main function of a program whose only option is `--json FILE`, plus other files if `files` is
// given. Rejects any other argument, or a FILE that cannot be written, before `measure` begins.
// Prints the report that `measure` fills.
int RunReport(int argc, char** argv, const std::string& title,
              const std::function<void(Report&)>& measure,
              std::vector<std::string>* files = nullptr);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_REPORT_H_
