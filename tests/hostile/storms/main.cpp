// SPDX-License-Identifier: Apache-2.0
// storms: prints a table of how unprivileged clients can affect others. See README.md.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/hostile/storms/experiment.h"
#include "tests/hostile/storms/median_outcome.h"
#include "tests/hostile/storms/report.h"
#include "tests/hostile/storms/storms.h"

#include <CLI/CLI.hpp>

namespace gpushared::storms {
namespace {

std::string ServerBesideThisProgram() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "gpushared";
}

std::vector<const Storm*> Chosen(const std::vector<std::string>& names) {
  std::vector<const Storm*> chosen;
  for (const std::string& name : names) chosen.push_back(FindStorm(name));
  if (names.empty()) {
    for (const Storm& storm : Storms()) chosen.push_back(&storm);
  }
  return chosen;
}

struct Invocation {
  StormPlan plan;
  std::vector<const Storm*> storms;
  int runs = 1;
  std::string json, markdown;
};

// Returns the runs of each storm, in order. A storm that did not start has no runs, and sets
// `is_sound` to false.
std::vector<std::vector<StormOutcome>> RunAll(const Invocation& asked, bool* is_sound) {
  std::vector<std::vector<StormOutcome>> outcomes(asked.storms.size());
  for (int run = 1; run <= asked.runs; ++run) {
    if (asked.runs > 1) std::printf("run %d of %d\n", run, asked.runs);
    for (std::size_t i = 0; i < asked.storms.size(); ++i) {
      std::fflush(stdout);
      try {
        outcomes[i].push_back(RunStorm(*asked.storms[i], asked.plan));
        std::printf("%s", TableRow(outcomes[i].back()).c_str());
      } catch (const std::exception& error) {
        std::printf("%s: %s\n", asked.storms[i]->name, error.what());
        *is_sound = false;
      }
    }
  }
  return outcomes;
}

bool Write(const Invocation& asked, const std::vector<StormOutcome>& outcomes) {
  if (!asked.json.empty() && !WriteJson(asked.json, outcomes)) {
    std::fprintf(stderr, "storms: cannot write '%s'\n", asked.json.c_str());
    return false;
  }
  if (asked.markdown.empty()) return true;
  std::ofstream file(asked.markdown);
  file << MarkdownTable(outcomes);
  file.close();
  if (!file) std::fprintf(stderr, "storms: cannot write '%s'\n", asked.markdown.c_str());
  return static_cast<bool>(file);
}

int Run(const Invocation& asked) {
  bool is_sound = true;
  std::printf("%s, %.0f s of storm each\n%s", asked.plan.server.c_str(), asked.plan.seconds,
              TableHead().c_str());
  std::vector<StormOutcome> medians;
  for (const std::vector<StormOutcome>& runs : RunAll(asked, &is_sound)) {
    if (!runs.empty()) medians.push_back(GetMedian(runs));
  }
  if (asked.runs > 1) std::printf("\nmedian of %d runs\n%s", asked.runs, TableHead().c_str());
  std::string remarks;
  for (const StormOutcome& outcome : medians) {
    is_sound = is_sound && outcome.Broken().empty();
    if (asked.runs > 1) std::printf("%s", TableRow(outcome).c_str());
    remarks += Remarks(outcome);
  }
  std::printf("\n%s", remarks.c_str());
  if (!Write(asked, medians)) return 2;
  return is_sound ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("storms of hostile clients against an honest one and new clients");
  Invocation asked{.plan = {.server = ServerBesideThisProgram()}};
  StormPlan& plan = asked.plan;
  std::vector<std::string> names;
  double memory_mib = static_cast<double>(plan.memory_limit_bytes >> 20);
  app.add_option("--server", plan.server,
                 "the gpushared to measure; built in: beside this program");
  app.add_option("--only", names, "these storms")->check([](const std::string& name) {
    return FindStorm(name) == nullptr ? "no storm '" + name + "', see --list" : "";
  });
  app.add_option("--seconds", plan.seconds, "length of each storm")->check(CLI::Range(0.5, 3600.));
  app.add_option("--deeds", plan.deeds_least, "each storm lasts until so many deeds, too");
  app.add_option("--memory-limit", memory_mib, "MiB for all processes of the server")
      ->check(CLI::Range(64., 1e6));
  app.add_option("--runs", asked.runs,
                 "run all storms so often, in turns; each figure is the median of its runs")
      ->check(CLI::Range(1, 100));
  app.add_option("--json", asked.json, "write the outcomes to this file, too");
  app.add_option("--markdown", asked.markdown, "write the figures with goals to this file, too");
  app.add_option("--samples", plan.samples_directory,
                 "write when each request, welcome and load began, and how long it took, to a file "
                 "of each storm in this directory");
  app.add_option("SERVER-ARGUMENT", plan.arguments, "further arguments of the server, after --");
  bool lists = false;
  app.add_flag("--list", lists, "name the storms");
  CLI11_PARSE(app, argc, argv);
  plan.memory_limit_bytes = static_cast<std::uint64_t>(memory_mib) << 20;
  if (lists) {
    for (const Storm& storm : Storms()) std::printf("%-12s %s\n", storm.name, storm.what);
    return 0;
  }
  asked.storms = Chosen(names);
  return Run(asked);
}

}  // namespace
}  // namespace gpushared::storms

int main(int argc, char** argv) { return gpushared::storms::Main(argc, argv); }
