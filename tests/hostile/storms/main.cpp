// SPDX-License-Identifier: Apache-2.0
// storms: what clients without privileges can do to others, as a table. See README.md.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/hostile/storms/experiment.h"
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

int Run(const StormPlan& plan, const std::vector<const Storm*>& storms, const std::string& json) {
  std::vector<StormOutcome> outcomes;
  std::string remarks;
  bool is_sound = true;
  std::printf("%s, %.0f s of storm each\n%s", plan.server.c_str(), plan.seconds,
              TableHead().c_str());
  for (const Storm* const storm : storms) {
    std::fflush(stdout);
    try {
      outcomes.push_back(RunStorm(*storm, plan));
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", storm->name, error.what());
      is_sound = false;
      continue;
    }
    is_sound = is_sound && outcomes.back().Broken().empty();
    std::printf("%s", TableRow(outcomes.back()).c_str());
    remarks += Remarks(outcomes.back());
  }
  std::printf("\n%s", remarks.c_str());
  if (!json.empty() && !WriteJson(json, outcomes)) {
    std::fprintf(stderr, "storms: cannot write '%s'\n", json.c_str());
    return 2;
  }
  return is_sound ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("storms of hostile clients against an honest one and newcomers");
  StormPlan plan{.server = ServerBesideThisProgram()};
  std::vector<std::string> names;
  std::string json;
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
  app.add_option("--json", json, "write the outcomes to this file, too");
  app.add_option("SERVER-ARGUMENT", plan.arguments, "further arguments of the server, after --");
  bool lists = false;
  app.add_flag("--list", lists, "name the storms");
  CLI11_PARSE(app, argc, argv);
  plan.memory_limit_bytes = static_cast<std::uint64_t>(memory_mib) << 20;
  if (lists) {
    for (const Storm& storm : Storms()) std::printf("%-12s %s\n", storm.name, storm.what);
    return 0;
  }
  return Run(plan, Chosen(names), json);
}

}  // namespace
}  // namespace gpushared::storms

int main(int argc, char** argv) { return gpushared::storms::Main(argc, argv); }
