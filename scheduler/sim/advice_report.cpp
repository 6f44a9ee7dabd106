// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/advice_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "scheduler/class_name.h"

#include <nlohmann/json.hpp>

namespace gpushared::simulation {
namespace {

// Names of the certainties, in the order of the enumerators.
constexpr std::array<std::string_view, 3> kCertainties = {"sure", "likely", "unsure"};

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string_view GetCertainty(const Advice& advice) {
  return kCertainties.at(static_cast<std::size_t>(advice.certainty));
}

// Replaces everything but printable ASCII, because names come from clients and files, and could
// move the terminal's cursor.
std::string Printable(const std::string& name) {
  std::string text = name;
  std::replace_if(
      text.begin(), text.end(), [](char each) { return each < ' ' || each > '~'; }, '?');
  return text;
}

std::string RowText(const ClientAdvice& client) {
  std::string requests = Format("%10s %10s %19s %10s %7s", "", "", "", "", "");
  if (client.p99_ms > 0) {
    requests = Format("%10.2f %10.2f %19s", client.p99_now_ms, client.p99_ms,
                      Format("%.2f to %.2f", client.p99_low_ms, client.p99_high_ms).c_str());
    requests += client.latency_target_ms
                    ? Format(" %10.2f %6.1f%%", *client.latency_target_ms, client.met_percent)
                    : Format(" %10s %7s", "", "");
  }
  const char* const verdict = client.falls_behind ? "falls behind" : client.is_late() ? "late" : "";
  return Format("%-6s %s %6.0f%% %6.1f%%  %s%s", client.scheduling_class.c_str(), requests.c_str(),
                client.pace_percent, client.device_percent, Printable(client.name).c_str(),
                client.is_job ? " (the job)" : "") +
         (*verdict != '\0' ? std::string("  <- ") + verdict : "") + "\n";
}

std::string VerdictText(const Advice& advice) {
  std::string text = Printable(advice.job) + (advice.fits() ? " fits" : " does not fit") + " on " +
                     Printable(advice.node) + "; " + std::string(GetCertainty(advice)) + "\n";
  for (const std::string& reason : advice.reasons) text += "  " + Printable(reason) + "\n";
  for (const std::string& doubt : advice.doubts) text += "  not sure: " + Printable(doubt) + "\n";
  return text;
}

}  // namespace

std::string AdviceText(const Advice& advice) {
  std::string text = Format("%-6s %10s %10s %19s %10s %7s %7s %7s  %s\n", "CLASS", "p99 NOW ms",
                            "p99 ms", "MAY BE", "TARGET ms", "MET", "PACE", "DEVICE", "CLIENT");
  for (const ClientAdvice& client : advice.clients) text += RowText(client);
  text += Format(
      "Under %s, the high class leaves %.0f%% of the time; the others would have %.0f%% "
      "of the device.\n",
      advice.policy.c_str(), advice.gap_percent, advice.lower_percent);
  return text + VerdictText(advice);
}

std::string RankingText(const std::vector<Advice>& ranked) {
  std::string text = AdviceText(ranked.front());
  if (ranked.size() == 1) return text;
  text += "\nAll nodes, the best one first:\n";
  for (const Advice& advice : ranked) text += VerdictText(advice);
  return text;
}

nlohmann::ordered_json AdviceJson(const Advice& advice) {
  nlohmann::ordered_json document = {{"node", advice.node},
                                     {"job", advice.job},
                                     {"policy", advice.policy},
                                     {"fits", advice.fits()},
                                     {"certainty", GetCertainty(advice)},
                                     {"reasons", advice.reasons},
                                     {"doubts", advice.doubts},
                                     {"gap_percent", advice.gap_percent},
                                     {"lower_percent", advice.lower_percent}};
  if (advice.memory_free_mib > 0) {
    document["memory_mib"] = advice.memory_mib;
    document["memory_free_mib"] = advice.memory_free_mib;
  }
  document["clients"] = nlohmann::ordered_json::array();
  for (const ClientAdvice& client : advice.clients) {
    nlohmann::ordered_json row = {{"name", client.name},
                                  {"class", client.scheduling_class},
                                  {"is_job", client.is_job},
                                  {"pace_percent", client.pace_percent},
                                  {"device_percent", client.device_percent},
                                  {"falls_behind", client.falls_behind}};
    if (client.p99_ms > 0) {
      row["requests"] = client.requests;
      row["p99_now_ms"] = client.p99_now_ms;
      row["p99_ms"] = client.p99_ms;
      row["p99_low_ms"] = client.p99_low_ms;
      row["p99_high_ms"] = client.p99_high_ms;
    }
    if (client.latency_target_ms) {
      row["latency_target_ms"] = *client.latency_target_ms;
      row["met_percent"] = client.met_percent;
    }
    document["clients"].push_back(std::move(row));
  }
  return document;
}

std::string HintText(const Profile& job, double share_percent) {
  const std::string name(scheduler::ClassName(job.spec.scheduling_class));
  std::string memory;
  if (job.memory_mib > 0) memory = Format(",gpushared_memory:%.0fM", std::ceil(job.memory_mib));
  return Format("Slurm: srun --gres=gpushared:%.0f%s --gpushared-class=%s\n", share_percent,
                memory.c_str(), name.c_str()) +
         Format(
             "Kubernetes: resources: {limits: {gpushared.io/ENDPOINT: 1}}, of an endpoint with "
             "class = \"%s\" and max_share = \"%.0f%%\"\n",
             name.c_str(), share_percent);
}

}  // namespace gpushared::simulation
