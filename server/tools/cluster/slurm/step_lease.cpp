// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/slurm/step_lease.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpushared/result.h"

#include "server/telemetry/admin/ask.h"
#include "server/tools/cluster/slurm/job_rules.h"

#include <nlohmann/json.hpp>

struct gpushared_lease {
  std::string server;  // The server's own socket.
  gpushared::admin::Lease lease;
  gpushared_usage reported;  // Usage already reported, or from before the lease.
};

namespace {

using gpushared::Result;
using gpushared::Status;
using gpushared::StatusCode;
using nlohmann::json;
namespace admin = gpushared::admin;
namespace slurm = gpushared::slurm;

constexpr std::chrono::seconds kSessionsEndMax{2};
constexpr std::chrono::milliseconds kPollEvery{20};

std::string Text(const char* text) { return text == nullptr ? std::string() : text; }

slurm::StepOptions GetOptions(const gpushared_options& options) {
  return {.scheduling_class = Text(options.scheduling_class),
          .share = Text(options.share),
          .memory = Text(options.memory)};
}

void SetReason(const std::string& what, char* why) {
  std::snprintf(why, GPUSHARED_TEXT_BYTES, "%s", what.c_str());
}

// Converts exceptions to errors, because Slurm's C code cannot handle them.
template <typename Work>
int Guarded(char* why, Work work) noexcept {
  try {
    const Status status = work();
    if (status.ok()) return 0;
    SetReason(status.message(), why);
  } catch (const std::exception& error) {
    std::snprintf(why, GPUSHARED_TEXT_BYTES, "%s", error.what());
  } catch (...) {
    std::snprintf(why, GPUSHARED_TEXT_BYTES, "an unknown error");
  }
  return -1;
}

Result<slurm::JobRules> ReadRules(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) return Status(StatusCode::kNotFound, "cannot read " + file);
  std::string text(slurm::kRulesBytesMax + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > slurm::kRulesBytesMax) {
    return Status(
        StatusCode::kInvalidArgument,
        file + " rejected: it has more than " + std::to_string(slurm::kRulesBytesMax) + " bytes");
  }
  return slurm::ParseJobRules(text, file);
}

std::uint64_t Number(const json& row, const char* key) { return row.at(key).get<std::uint64_t>(); }

// Returns the usage through the endpoint so far, summed over all devices and classes.
Result<gpushared_usage> Sum(const std::string& server, const std::string& endpoint) {
  const Result<json> status = admin::Ask(server, {.verb = gpushared::ipc::AdminVerb::kStatus});
  if (!status.ok()) return status.status();
  gpushared_usage sum = {};
  for (const json& device : status->at("devices")) {
    const auto totals = device.find("totals");
    if (totals == device.end()) continue;
    for (const json& row : totals->at("endpoints")) {
      if (row.at("endpoint") != endpoint) continue;
      sum.device_us +=
          static_cast<std::uint64_t>(std::llround(row.at("device_time_s").get<double>() * 1e6));
      sum.bytes +=
          Number(row, "bytes_in") + Number(row, "bytes_out") + Number(row, "bytes_on_device");
      sum.requests += Number(row, "requests");
      sum.with_target += Number(row, "requests_with_target");
      sum.met += Number(row, "requests_target_met");
    }
  }
  return sum;
}

gpushared_usage Difference(const gpushared_usage& now, const gpushared_usage& before) {
  // A difference below 0 is treated as 0, because counters decrease only if the server was
  // restarted.
  const auto less = [](std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; };
  return {.device_us = less(now.device_us, before.device_us),
          .bytes = less(now.bytes, before.bytes),
          .requests = less(now.requests, before.requests),
          .with_target = less(now.with_target, before.with_target),
          .met = less(now.met, before.met)};
}

// Returns true if no client is left that could increase the sums.
Result<bool> IsEmpty(const gpushared_lease& lease) {
  const Result<json> answer =
      admin::Ask(lease.server, {.verb = gpushared::ipc::AdminVerb::kEndpoints});
  if (!answer.ok()) return answer.status();
  for (const json& row : answer->at("endpoints")) {
    if (row.at("socket") == lease.lease.socket()) return row.at("sessions") == 0;
  }
  return Status(StatusCode::kNotFound,
                "the server has no endpoint '" + lease.lease.endpoint() + "': it was restarted");
}

Status AwaitEmpty(const gpushared_lease& lease) {
  const auto deadline = std::chrono::steady_clock::now() + kSessionsEndMax;
  while (true) {
    const Result<bool> is_empty = IsEmpty(lease);
    if (!is_empty.ok()) return is_empty.status();
    // Gives up at the deadline, because processes left behind by the step may run longer.
    if (*is_empty || std::chrono::steady_clock::now() > deadline) return Status::Ok();
    std::this_thread::sleep_for(kPollEvery);
  }
}

// Returns the device to which the job's gres refers; empty if the gres has no type.
Result<std::string> FindDevice(const std::string& server, const std::string& type) {
  if (type.empty()) return type;
  const Result<json> answer = admin::Ask(server, {.verb = gpushared::ipc::AdminVerb::kDevices});
  if (!answer.ok()) return answer.status();
  std::vector<slurm::NodeDevice> devices;
  for (const json& row : answer->at("devices")) {
    devices.push_back({.device = row.at("device"), .name = row.value("name", "")});
  }
  return slurm::DeviceOfType(type, devices);
}

Result<gpushared_lease*> Begin(const std::string& rules_file, const gpushared_step& step) {
  const Result<slurm::Allocation> has = slurm::ParseAllocation(Text(step.gres));
  if (!has.ok()) return has.status();
  const Result<slurm::JobRules> rules = ReadRules(rules_file);
  if (!rules.ok()) return rules.status();
  const slurm::StepFacts facts = {.job = step.job,
                                  .step = Text(step.step),
                                  .restarts = step.restarts,
                                  .uid = step.uid,
                                  .tasks = step.tasks,
                                  .qos = Text(step.qos)};
  const Result<std::string> device = FindDevice(rules->socket, has->type);
  if (!device.ok()) return device.status();
  const Result<std::optional<std::string>> terms =
      slurm::StepTerms(*rules, facts, *has, *device, GetOptions(step.options));
  if (!terms.ok()) return terms.status();
  if (!*terms) return nullptr;
  Result<admin::Lease> lease = admin::Lease::Take(rules->socket, **terms);
  if (!lease.ok()) return lease.status();
  // The usage so far is subtracted, because a step of the same name may have run earlier.
  const Result<gpushared_usage> before = Sum(rules->socket, lease->endpoint());
  if (!before.ok()) return before.status();
  return new gpushared_lease{rules->socket, *std::move(lease), *before};
}

}  // namespace

int gpushared_check_options(const gpushared_options* options, char* why) {
  return Guarded(why, [&] { return slurm::CheckOptions(GetOptions(*options)); });
}

int gpushared_lease_begin(const char* rules_file, const gpushared_step* step,
                          gpushared_lease** lease, char* why) {
  *lease = nullptr;
  return Guarded(why, [&] {
    const Result<gpushared_lease*> begun = Begin(rules_file, *step);
    if (begun.ok()) *lease = *begun;
    return begun.ok() ? Status::Ok() : begun.status();
  });
}

const char* gpushared_lease_socket(const gpushared_lease* lease) {
  return lease->lease.socket().c_str();
}

int gpushared_lease_used(gpushared_lease* lease, int must_be_over, gpushared_usage* used,
                         char* why) {
  *used = {};
  return Guarded(why, [&] {
    Status status = must_be_over != 0 ? AwaitEmpty(*lease) : Status::Ok();
    if (!status.ok()) return status;
    const Result<gpushared_usage> now = Sum(lease->server, lease->lease.endpoint());
    if (!now.ok()) return now.status();
    *used = Difference(*now, lease->reported);
    lease->reported = *now;
    return status;
  });
}

void gpushared_lease_end(gpushared_lease* lease) { delete lease; }
