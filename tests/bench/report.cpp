// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string Readable(double ns) {
  char text[32];
  if (ns < 10e3) {
    std::snprintf(text, sizeof text, "%.0f ns", ns);
  } else if (ns < 10e6) {
    std::snprintf(text, sizeof text, "%.1f us", ns / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f ms", ns / 1e6);
  }
  return text;
}

}  // namespace

double Samples::Percentile(double fraction) const {
  if (values_ns_.empty()) return 0;
  std::vector<double> sorted = values_ns_;
  const auto at = std::min(static_cast<std::size_t>(fraction * static_cast<double>(sorted.size())),
                           sorted.size() - 1);
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
  return sorted[at];
}

void Report::Add(const std::string& what, const Samples& samples) {
  rows_.push_back({.what = what,
                   .p50_ns = samples.Percentile(0.5),
                   .p99_ns = samples.Percentile(0.99),
                   .max_ns = samples.Percentile(1),
                   .samples = samples.count()});
}

void Report::AddValue(const std::string& what, double value, const std::string& unit) {
  rows_.push_back({.what = what, .is_value = true, .value = value, .unit = unit});
}

void Report::Print() const {
  std::printf("%s\n", name_.c_str());
  for (const std::string& line : Environment()) std::printf("  %s\n", line.c_str());
  std::printf("%-56s %12s %12s %12s %10s\n", "", "p50", "p99", "max", "samples");
  for (const Row& row : rows_) {
    if (row.is_value) {
      std::printf("%-56s %12.6g %s\n", row.what.c_str(), row.value, row.unit.c_str());
    } else {
      std::printf("%-56s %12s %12s %12s %10zu\n", row.what.c_str(), Readable(row.p50_ns).c_str(),
                  Readable(row.p99_ns).c_str(), Readable(row.max_ns).c_str(), row.samples);
    }
  }
}

bool Report::WriteJson(const std::string& path) const {
  if (path.empty()) return true;
  nlohmann::json json{
      {"name", name_}, {"environment", Environment()}, {"rows", nlohmann::json::array()}};
  for (const Row& row : rows_) {
    json["rows"].push_back(
        row.is_value ? nlohmann::json{{"what", row.what}, {"value", row.value}, {"unit", row.unit}}
                     : nlohmann::json{{"what", row.what},
                                      {"p50_ns", row.p50_ns},
                                      {"p99_ns", row.p99_ns},
                                      {"max_ns", row.max_ns},
                                      {"samples", row.samples}});
  }
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  if (!file) std::fprintf(stderr, "%s: cannot write '%s'\n", name_.c_str(), path.c_str());
  return static_cast<bool>(file);
}

std::vector<std::string> Environment() {
  utsname system{};
  ::uname(&system);
  return {
      "cpu: " + CpuModel() + ", " + std::to_string(std::thread::hardware_concurrency()) + " usable",
      std::string("kernel: ") + system.release,
      "compiler: g++ " __VERSION__
#ifdef NDEBUG
      ", release"
#else
      ", with assertions"
#endif
  };
}

int RunProgram(const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

int RunReport(int argc, char** argv, const std::string& title,
              const std::function<void(Report&)>& measure, std::vector<std::string>* files) {
  CLI::App app(title);
  std::string json;
  app.add_option("--json", json, "write the report to this file, too");
  if (files != nullptr) app.add_option("FILE", *files);
  CLI11_PARSE(app, argc, argv);
  return RunProgram([&] {
    Report report(title);
    if (!report.WriteJson(json)) return 1;
    measure(report);
    report.Print();
    return report.WriteJson(json) ? 0 : 1;
  });
}

}  // namespace gpushared::testing
