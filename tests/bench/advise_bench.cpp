// SPDX-License-Identifier: Apache-2.0
// Compares the predictions of `gpusharedctl advise` with real runs of ten mixes. For each mix, the
// job is profiled alone and the clients already on the device are profiled together, as an operator
// would do. Then all of them run together, several times, and the predictions from the profiles are
// compared with these runs. Each run is also compared with the previous run, because no prediction
// can be expected to be closer to a run than another run of the same clients is. Recordings can be
// saved and evaluated again.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/sim/experiment.h"
#include "tests/bench/advise_mixes.h"
#include "tests/bench/replay_clients.h"
#include "tests/bench/report.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::nanoseconds;

// Requests at the beginning that are not counted, because policies and predictions are still
// learning. The advice skips them as well.
constexpr std::size_t kWarmUp = 20;
constexpr double kErrorMax = 0.25;

struct Arguments {
  std::vector<std::size_t> mixes;  // Numbered from 1; all if empty.
  double seconds = 20;
  std::uint32_t seed = 1;
  int tries = 1, runs = 1;
  double waited_max = 0.05;
  bool signs_only = false;
  std::string json, keep, from, before;
};

double Milliseconds(nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Recording {
  MixOutcome job, node;
  std::vector<MixOutcome> together;  // At least one.
};

// Results of a client with requests. `p99_now_ms` is from its run before all clients ran together:
// without the job, or for the job, alone.
struct ClientRow {
  std::string name;
  double p99_now_ms = 0;
  std::vector<double> p50s_ms, p99s_ms, kept_percents;  // By run.
  double advised_now_ms = 0, advised_ms = 0, low_ms = 0, high_ms = 0;
  double hindsight_ms = 0;  // See Answers::hindsight.
  std::optional<double> latency_target_ms;

  double p99_ms() const { return Median(p99s_ms); }
  double error() const { return p99_ms() / advised_ms - 1; }
  double model_error() const { return p99s_ms.front() / hindsight_ms - 1; }
  double error_now() const { return p99_now_ms / advised_now_ms - 1; }
  // Returns the largest error if each run's p99 is used as the prediction of the next run's.
  double repeated_error() const {
    double worst = 0;
    for (std::size_t i = 1; i < p99s_ms.size(); ++i) {
      const double error = p99s_ms[i] / p99s_ms[i - 1] - 1;
      if (std::abs(error) > std::abs(worst)) worst = error;
    }
    return worst;
  }
};

struct MixRow {
  std::size_t number = 0;
  AdviseMix mix;
  std::vector<ClientRow> clients;
  bool fits = true, is_advised = true;
  std::string certainty;
  double worker_waited = 0;

  double Worst(double (ClientRow::*error)() const) const {
    double worst = 0;
    for (const ClientRow& client : clients) worst = std::max(worst, std::abs((client.*error)()));
    return worst;
  }
};

void Save(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

// Repeats the run until the machine was quiet enough during one, at most `tries` times in total.
// Returns the quietest run.
MixOutcome RunQuietly(const Arguments& arguments, const MixRun& run) {
  MixOutcome best = RunMix(run);
  for (int i = 1; i < arguments.tries && best.worker_waited > arguments.waited_max; ++i) {
    MixOutcome next = RunMix(run);
    if (next.worker_waited < best.worker_waited) best = std::move(next);
  }
  return best;
}

Json Ask(const std::string& node, const std::string& job, const std::string& seeds) {
  const ProgramOutcome told =
      RunProgram({GPUSHARED_CTL, "advise", job, "--node", node, "--seeds", seeds, "--json"});
  if (told.exit_code != 0 && told.exit_code != 4) throw std::runtime_error(told.output);
  Json advice = Json::parse(told.output);
  if (advice.at("fits").get<bool>() != (told.exit_code == 0))
    throw std::runtime_error("the exit code contradicts the answer: " + told.output);
  return advice;
}

Json ToJson(const MixOutcome& outcome) {
  Json clients = Json::array();
  for (const std::vector<nanoseconds>& latencies : outcome.latencies) {
    Json times = Json::array();
    for (const nanoseconds time : latencies) times.push_back(time.count());
    clients.push_back(std::move(times));
  }
  return {{"worker_waited", outcome.worker_waited}, {"latencies_ns", std::move(clients)}};
}

MixOutcome GetOutcome(const Json& kept) {
  MixOutcome outcome;
  outcome.worker_waited = kept.at("worker_waited").get<double>();
  for (const Json& times : kept.at("latencies_ns")) {
    outcome.latencies.emplace_back();
    for (const Json& time : times) outcome.latencies.back().emplace_back(time.get<std::int64_t>());
  }
  return outcome;
}

// The persisted files of one mix.
struct MixFiles {
  MixFiles(const std::string& directory, std::size_t number)
      : job(directory + "/job" + std::to_string(number) + ".json"),
        node(directory + "/node" + std::to_string(number) + ".json"),
        all(directory + "/all" + std::to_string(number) + ".json"),
        ran(directory + "/ran" + std::to_string(number) + ".json") {}
  std::string job, node;
  std::string all;  // Profile of the first run of all clients together.
  std::string ran;
};

Recording Record(const Arguments& arguments, const AdviseMix& mix, const MixFiles& files) {
  Recording recording;
  MixRun run{.policy = mix.policy,
             .clients = {mix.job},
             .seconds = arguments.seconds,
             .seed = arguments.seed,
             .profile_of = mix.job.name,
             .first_client = static_cast<std::uint32_t>(mix.residents.size())};
  recording.job = RunQuietly(arguments, run);
  Save(files.job, recording.job.profile);
  run.clients = mix.residents;
  run.profile_of = "--node";
  run.first_client = 0;
  recording.node = RunQuietly(arguments, run);
  Save(files.node, recording.node.profile);
  run.clients.push_back(mix.job);
  Json together = Json::array();
  for (int i = 0; i < arguments.runs; ++i) {
    recording.together.push_back(RunQuietly(arguments, run));
    together.push_back(ToJson(recording.together.back()));
  }
  Save(files.all, recording.together.front().profile);
  Save(files.ran, Json({{"job", ToJson(recording.job)},
                        {"node", ToJson(recording.node)},
                        {"together", together}})
                      .dump());
  return recording;
}

Recording Load(const MixFiles& files) {
  std::ifstream file(files.ran);
  if (!file) throw std::runtime_error("cannot read " + files.ran);
  const Json kept = Json::parse(file);
  Recording recording{
      .job = GetOutcome(kept.at("job")), .node = GetOutcome(kept.at("node")), .together = {}};
  for (const Json& run : kept.at("together")) recording.together.push_back(GetOutcome(run));
  if (recording.together.empty())
    throw std::runtime_error(files.ran + " contains no run of all clients together");
  return recording;
}

double P99(std::vector<nanoseconds>& latencies, const std::string& name) {
  if (latencies.size() <= 2 * kWarmUp) throw std::runtime_error(name + ": too few requests");
  latencies.erase(latencies.begin(), latencies.begin() + kWarmUp);
  return Milliseconds(simulation::Percentile(latencies, 0.99));
}

// The answers to one question.
struct Answers {
  // The prediction for exactly the recorded arrivals, which the real run repeats.
  Json same_arrivals;
  // The prediction for other arrivals of the same kind, which is what operators usually ask for.
  Json usual;
  // The prediction from a profile of the first run of all clients together. Profile and run contain
  // the same noise of the machine, so the difference is the model's error.
  Json hindsight;
};

Answers AskAll(const MixFiles& files, const std::string& job) {
  const ScratchDirectory scratch;
  std::ifstream file(files.all);
  Json node = Json::parse(file), others = Json::array();
  for (Json& client : node.at("clients")) {
    if (client.at("name") == job) {
      Save(scratch / "job.json", client.dump());
    } else {
      others.push_back(std::move(client));
    }
  }
  node["clients"] = std::move(others);
  Save(scratch / "node.json", node.dump());
  return {.same_arrivals = Ask(files.node, files.job, "1"),
          .usual = Ask(files.node, files.job, "5"),
          .hindsight = Ask(scratch / "node.json", scratch / "job.json", "1")};
}

const Json& About(const std::string& name, const Json& answer) {
  for (const Json& client : answer.at("clients"))
    if (client.at("name") == name) return client;
  throw std::runtime_error("no advice about " + name);
}

void AddRun(const MixClient& client, std::vector<nanoseconds> latencies, ClientRow& row) {
  row.p99s_ms.push_back(P99(latencies, client.name));
  row.p50s_ms.push_back(Milliseconds(simulation::Percentile(latencies, 0.5)));
  const auto kept = std::count_if(latencies.begin(), latencies.end(), [&](nanoseconds time) {
    return !client.target || time <= *client.target;
  });
  row.kept_percents.push_back(100 * static_cast<double>(kept) /
                              static_cast<double>(latencies.size()));
}

// `number`: index of the client in the combined runs.
ClientRow GetRow(const MixClient& client, std::size_t number, std::vector<nanoseconds> before,
                 const Recording& recording, const Answers& answers) {
  ClientRow row{.name = client.name,
                .p50s_ms = {},
                .p99s_ms = {},
                .kept_percents = {},
                .latency_target_ms = {}};
  row.p99_now_ms = P99(before, client.name);
  for (const MixOutcome& run : recording.together) AddRun(client, run.latencies[number], row);
  if (client.target) row.latency_target_ms = Milliseconds(*client.target);
  const Json& same = About(client.name, answers.same_arrivals);
  const Json& usual = About(client.name, answers.usual);
  row.advised_now_ms = same.at("p99_now_ms").get<double>();
  row.advised_ms = same.at("p99_ms").get<double>();
  row.hindsight_ms = About(client.name, answers.hindsight).at("p99_ms").get<double>();
  row.low_ms = usual.at("p99_low_ms").get<double>();
  row.high_ms = usual.at("p99_high_ms").get<double>();
  return row;
}

MixRow Compare(std::size_t number, const AdviseMix& mix, const Recording& recording,
               const Answers& answers) {
  MixRow row{.number = number, .mix = mix, .clients = {}};
  for (const MixOutcome& run : recording.together)
    row.worker_waited = std::max(row.worker_waited, run.worker_waited);
  row.is_advised = answers.usual.at("fits").get<bool>();
  row.certainty = answers.usual.at("certainty").get<std::string>();
  std::vector<MixClient> clients = mix.residents;
  clients.push_back(mix.job);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (!clients[i].has_requests()) continue;
    const bool is_job = i == mix.residents.size();
    row.clients.push_back(GetRow(clients[i], i,
                                 is_job ? recording.job.latencies[0] : recording.node.latencies[i],
                                 recording, answers));
    const ClientRow& client = row.clients.back();
    if (client.latency_target_ms && client.p99_ms() > *client.latency_target_ms) row.fits = false;
  }
  return row;
}

MixRow Try(const Arguments& arguments, std::size_t number, const AdviseMix& mix) {
  const ScratchDirectory scratch;
  const std::string& kept = arguments.from.empty() ? arguments.keep : arguments.from;
  const MixFiles files(kept.empty() ? scratch.path() : kept, number);
  Recording recording = arguments.from.empty() ? Record(arguments, mix, files) : Load(files);
  if (!arguments.before.empty()) {
    std::vector<MixOutcome> earlier = Load(MixFiles(arguments.before, number)).together;
    recording.together.insert(recording.together.end(), earlier.begin(), earlier.end());
  }
  return Compare(number, mix, recording, AskAll(files, mix.job.name));
}

void Print(const MixRow& row) {
  for (const ClientRow& client : row.clients) {
    const bool is_first = &client == &row.clients.front();
    char target[32] = "";
    if (client.latency_target_ms)
      std::snprintf(target, sizeof target, "%.0f", *client.latency_target_ms);
    std::printf(
        "%4s %-28s %-11s %-7s %8.1f %8.1f %+7.1f%% %8.1f %8.1f %8.1f to %-8.1f %+7.1f%% "
        "%+7.1f%% %+7.1f%% %8s %6.1f%%",
        is_first ? std::to_string(row.number).c_str() : "", is_first ? row.mix.what.c_str() : "",
        is_first ? row.mix.policy.c_str() : "", client.name.c_str(), client.p99_now_ms,
        client.advised_now_ms, 100 * client.error_now(), client.p99_ms(), client.advised_ms,
        client.low_ms, client.high_ms, 100 * client.error(), 100 * client.repeated_error(),
        100 * client.model_error(), target, Median(client.kept_percents));
    if (is_first) {
      std::printf("  %s, said %s (%s)%s  waited %.1f%%", row.fits ? "fits" : "does not",
                  row.is_advised ? "fits" : "does not", row.certainty.c_str(),
                  row.fits == row.is_advised ? "" : " WRONG", 100 * row.worker_waited);
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

Json ToJson(const MixRow& row) {
  Json clients = Json::array();
  for (const ClientRow& client : row.clients) {
    clients.push_back({{"name", client.name},
                       {"p50s_ms", client.p50s_ms},
                       {"p99s_ms", client.p99s_ms},
                       {"p99_advised_ms", client.advised_ms},
                       {"p99_hindsight_ms", client.hindsight_ms},
                       {"p99_now_ms", client.p99_now_ms},
                       {"p99_now_advised_ms", client.advised_now_ms},
                       {"p99_low_ms", client.low_ms},
                       {"p99_high_ms", client.high_ms},
                       {"kept_percents", client.kept_percents}});
  }
  return {{"mix", row.number},         {"what", row.mix.what},
          {"policy", row.mix.policy},  {"fits", row.fits},
          {"advised", row.is_advised}, {"certainty", row.certainty},
          {"clients", clients},        {"worker_waited", row.worker_waited}};
}

int RunAll(const Arguments& arguments) {
  const std::vector<AdviseMix> mixes = AdviseMixes();
  if (arguments.from.empty())
    std::printf("%.0f s each, seed %u, all clients %d times\n", arguments.seconds, arguments.seed,
                arguments.runs);
  std::printf("%4s %-28s %-11s %-7s %8s %8s %8s %8s %8s %20s %8s %8s %8s %8s %7s\n", "MIX", "",
              "POLICY", "CLIENT", "NOW ms", "SAID ms", "ERROR", "p99 ms", "SAID ms", "MAY BE",
              "ERROR", "REPEATED", "MODEL", "PROMISE", "KEPT");
  Json rows = Json::array();
  std::size_t near = 0, near_model = 0, repeated = 0, right = 0, tried = 0;
  for (std::size_t number = 1; number <= mixes.size(); ++number) {
    const bool is_asked =
        arguments.mixes.empty() ||
        std::find(arguments.mixes.begin(), arguments.mixes.end(), number) != arguments.mixes.end();
    if (!is_asked) continue;
    const MixRow row = Try(arguments, number, mixes[number - 1]);
    Print(row);
    rows.push_back(ToJson(row));
    ++tried;
    near += row.Worst(&ClientRow::error) <= kErrorMax;
    near_model += row.Worst(&ClientRow::model_error) <= kErrorMax;
    repeated += row.Worst(&ClientRow::repeated_error) <= kErrorMax;
    right += row.fits == row.is_advised;
  }
  std::printf(
      "p99 of all clients within %.0f%%: %zu of %zu, from a profile of the run itself (MODEL): "
      "%zu of %zu; from the p99 of the run before (REPEATED): %zu of %zu; verdict right in "
      "%zu "
      "of %zu\n",
      100 * kErrorMax, near, tried, near_model, tried, repeated, tried, right, tried);
  if (!arguments.json.empty()) {
    Save(arguments.json,
         Json({{"environment", Environment()}, {"seconds", arguments.seconds}, {"rows", rows}})
                 .dump(1) +
             "\n");
  }
  return right == tried && (arguments.signs_only || near == tried) ? 0 : 1;
}

int Run(int argc, char** argv) {
  CLI::App app("compares the predictions of gpusharedctl advise with real runs of ten mixes");
  Arguments arguments;
  app.add_option("--mix", arguments.mixes, "numbers of the mixes to run, from 1 (all)")
      ->check(CLI::Range(std::size_t{1}, AdviseMixes().size()));
  app.add_option("--seconds", arguments.seconds, "length of each run (20)")
      ->check(CLI::Range(3.0, 600.0));
  app.add_option("--seed", arguments.seed, "seed of the arrivals (1)");
  app.add_option("--tries", arguments.tries, "maximum number of tries of a disturbed run (1)")
      ->check(CLI::Range(1, 100));
  app.add_option("--runs", arguments.runs, "runs of all clients together; the median counts (1)")
      ->check(CLI::Range(1, 100));
  app.add_option(
      "--waited-max", arguments.waited_max,
      "a run is disturbed if the worker waited for a core longer than this part of it (0.05)");
  app.add_flag("--signs-only", arguments.signs_only, "fail only for a wrong verdict");
  app.add_option("--json", arguments.json, "write the rows to this file");
  CLI::Option* const keep =
      app.add_option("--keep", arguments.keep, "save the recordings in this directory")
          ->check(CLI::ExistingDirectory);
  app.add_option("--from", arguments.from,
                 "evaluate the recordings in this directory instead of running the mixes")
      ->check(CLI::ExistingDirectory)
      ->excludes(keep);
  app.add_option("--before", arguments.before,
                 "also count the runs recorded in this directory, with the same options")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  for (const std::string& line : Environment()) std::printf("%s\n", line.c_str());
  return RunAll(arguments);
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  return gpushared::testing::RunProgram([&] { return gpushared::testing::Run(argc, argv); });
}
