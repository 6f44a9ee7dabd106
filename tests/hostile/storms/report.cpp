// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include <nlohmann/json.hpp>

namespace gpushared::storms {
namespace {

std::string Ms(double ns) { return fmt::format("{:.{}f}", ns / 1e6, ns < 9.95e6 ? 1 : 0); }
std::uint64_t MiB(std::uint64_t bytes) { return bytes >> 20; }

nlohmann::json JsonFor(const Latencies& latencies) {
  return {{"p50_ns", latencies.p50},       {"p99_ns", latencies.p99},
          {"p999_ns", latencies.p999},     {"worst_ns", latencies.worst},
          {"count", latencies.count},      {"unfinished", latencies.unfinished},
          {"rejected", latencies.rejected}};
}

nlohmann::json JsonFor(const Holdings& holdings) {
  return {{"broker_bytes", holdings.broker_bytes},
          {"workers_bytes", holdings.workers_bytes},
          {"broker_descriptors", holdings.broker_descriptors},
          {"workers_descriptors", holdings.workers_descriptors}};
}

nlohmann::json JsonFor(const StormOutcome& outcome) {
  return {{"name", outcome.name},
          {"what", outcome.what},
          {"seconds", outcome.seconds},
          {"honest", JsonFor(outcome.honest)},
          {"honest_alone", JsonFor(outcome.honest_alone)},
          {"p50_ratio", outcome.p50_ratio},
          {"p99_ratio", outcome.p99_ratio},
          {"welcome", JsonFor(outcome.welcome)},
          {"welcome_alone", JsonFor(outcome.welcome_alone)},
          {"load", JsonFor(outcome.load)},
          {"load_alone", JsonFor(outcome.load_alone)},
          {"attackers_cores", outcome.attackers_cores},
          {"control", JsonFor(outcome.control)},
          {"control_p99_ratio", outcome.control_p99_ratio},
          {"control_welcome", JsonFor(outcome.control_welcome)},
          {"control_load", JsonFor(outcome.control_load)},
          {"result", JsonFor(outcome.result)},
          {"new_clients_left_out", outcome.new_clients_left_out},
          {"log_bytes_per_minute", outcome.log_bytes_per_minute},
          {"before", JsonFor(outcome.before)},
          {"after", JsonFor(outcome.after)},
          {"most_bytes", outcome.most_bytes},
          {"memory_kills", outcome.memory_kills},
          {"deeds", outcome.deeds},
          {"rejected_deeds", outcome.rejected_deeds},
          {"wrong_results", outcome.wrong_results},
          {"reconnects", outcome.reconnects},
          {"broken", outcome.Broken()},
          {"missed", outcome.Missed()},
          {"honest_words", outcome.honest_words},
          {"new_client_words", outcome.new_client_words},
          {"attacker_words", outcome.attacker_words}};
}

}  // namespace

std::string TableHead() {
  return fmt::format(
      "{:<12}|{:^45}|{:^33}|{:^24}|{:>9}|{:^27}|{:^17}|{:>10}|\n"
      "{:<12}|{:>6}{:>7}{:>7}{:>7}{:>9}{:>9}|{:>7}{:>9}{:>8}{:>9}|{:>6}{:>9}{:>9}|{:>9}|{:>9}{:>9}{"
      ":>"
      "9}|{:>8}{:>9}|{:>10}| {}\n",
      "", "honest client, ms; ratio to alone", "new clients, ms", "control", "log",
      "all memory, MiB", "descriptors", "", "storm", "p50", "p99", "p99.9", "worst", "p50 x",
      "p99 x", "served", "welc p50", "p99", "load p99", "cores", "p99 x", "welc p99", "kB/min",
      "before", "most", "after", "before", "after", "deeds", "missed goals; BROKEN");
}

std::string TableRow(const StormOutcome& o) {
  const std::string broken = o.Broken();
  const std::size_t begun = o.result.count + o.result.rejected;
  return fmt::format(
      "{:<12}|{:>6}{:>7}{:>7}{:>7}{:>9.2f}{:>9.2f}|{:>7}{:>9}{:>8}{:>9}|{:>6.2f}{:>9.2f}{:>9}|{:>9."
      "0f}|{:>9}{:>9}{:>9}|"
      "{:>8}{:>9}|{:>10}| {}\n",
      o.name, Ms(o.honest.p50), Ms(o.honest.p99), Ms(o.honest.p999), Ms(o.honest.worst),
      o.p50_ratio, o.p99_ratio, fmt::format("{}/{}", o.result.count - o.result.unfinished, begun),
      Ms(o.welcome.p50), Ms(o.welcome.p99), Ms(o.load.p99), o.attackers_cores, o.control_p99_ratio,
      Ms(o.control_welcome.p99), o.log_bytes_per_minute / 1e3, MiB(o.before.Bytes()),
      MiB(o.most_bytes), MiB(o.after.Bytes()), o.before.Descriptors(), o.after.Descriptors(),
      o.deeds, o.Missed() + (broken.empty() ? "" : " BROKEN: " + broken));
}

std::string Remarks(const StormOutcome& o) {
  std::string text = fmt::format("  {}: {}", o.name, o.what);
  text +=
      fmt::format("; alone p50 {} p99 {}, welcome p99 {}, load p99 {} ms", Ms(o.honest_alone.p50),
                  Ms(o.honest_alone.p99), Ms(o.welcome_alone.p99), Ms(o.load_alone.p99));
  if (o.new_clients_left_out > 0)
    text += fmt::format("; {} new clients left out, {} were under way", o.new_clients_left_out,
                        o.result.unfinished);
  if (!o.not_caged.empty()) text += "; " + o.not_caged;
  if (o.rejected_deeds > 0) text += fmt::format("; {} deeds rejected", o.rejected_deeds);
  for (const auto& [who, words] :
       {std::pair("honest", o.honest_words), std::pair("new_client", o.new_client_words),
        std::pair("attacker", o.attacker_words)}) {
    if (!words.empty()) text += fmt::format("\n    {}: {}", who, words);
  }
  if (!o.Broken().empty()) text += "\n    log: " + o.log_tail;
  return text + "\n";
}

std::string MarkdownTable(const std::vector<StormOutcome>& outcomes) {
  const auto bold = [](const std::string& figure, bool is_missed) {
    return is_missed ? "**" + figure + "**" : figure;
  };
  std::string text =
      "| storm | honest p99, ratio | the control's | honest p99, ms | welcome p99, ms | the "
      "control's | small load p99, ms | log, kB/min |\n|---|---|---|---|---|---|---|---|\n";
  for (const StormOutcome& o : outcomes) {
    const bool has_control = o.control_p99_ratio != 0;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", o.name,
                        bold(fmt::format("{:.2f}", o.p99_ratio), o.p99_ratio > kHonestRatioMax),
                        has_control ? fmt::format("{:.2f}", o.control_p99_ratio) : "",
                        Ms(o.honest.p99), bold(Ms(o.welcome.p99), o.welcome.p99 > kWelcomeP99MaxNs),
                        has_control ? Ms(o.control_welcome.p99) : "",
                        bold(Ms(o.load.p99), o.load.p99 > kLoadP99MaxNs),
                        bold(fmt::format("{:.0f}", o.log_bytes_per_minute / 1e3),
                             o.log_bytes_per_minute > kLogBytesPerMinuteMax));
  }
  return text;
}

bool WriteJson(const std::string& path, const std::vector<StormOutcome>& outcomes) {
  nlohmann::json json = nlohmann::json::array();
  for (const StormOutcome& outcome : outcomes) json.push_back(JsonFor(outcome));
  std::ofstream file(path);
  // Messages from other processes may contain any bytes.
  file << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  file.close();
  return static_cast<bool>(file);
}

}  // namespace gpushared::storms
