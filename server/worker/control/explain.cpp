// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/explain.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "scheduler/class_name.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

namespace {

using nlohmann::ordered_json;
using scheduler::Duration;

double Us(Duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

double SecondsAgo(scheduler::TimePoint then, scheduler::TimePoint now) {
  return std::chrono::duration<double>(now - then).count();
}

const SessionFacts* Find(const std::vector<SessionFacts>& sessions, std::uint64_t session) {
  const auto found = std::ranges::find(sessions, session, &SessionFacts::session);
  return found == sessions.end() ? nullptr : &*found;
}

// Clients that have left are described by their number only.
ordered_json Who(std::uint64_t session, const std::vector<SessionFacts>& sessions) {
  ordered_json who;
  who["client"] = session;
  if (const SessionFacts* const facts = Find(sessions, session)) {
    who["name"] = facts->name;
    who["class"] = scheduler::ClassName(facts->spec.scheduling_class);
  }
  return who;
}

ordered_json BlockerJson(const Blocker& blocker, const std::vector<SessionFacts>& sessions) {
  ordered_json behind = Who(blocker.session, sessions);
  if (!blocker.what.view().empty()) behind["what"] = blocker.what.view();
  behind["on_device_us"] = Us(blocker.on_device);
  behind["predicted_us"] = Us(blocker.predicted);
  behind["was_stopped"] = blocker.cut == Blocker::Cut::kStopped;
  behind["cut"] = trace::GetText(blocker.cut).in_message;
  if (blocker.cut == Blocker::Cut::kStopped) behind["stop_latency_us"] = Us(blocker.stop_took);
  return behind;
}

// Times of a waterfall are in microseconds since the request began, so earlier events have negative
// times.
ordered_json WaterfallJson(std::uint64_t session, const RequestReports& reports,
                           const std::vector<SessionFacts>& sessions) {
  const RequestReport& report = reports.report;
  const auto since = [&](scheduler::TimePoint at) { return Us(at - report.begun); };
  ordered_json rows = ordered_json::array();
  for (const Wait& wait : report.waterfall.waits.items()) {
    ordered_json& row = rows.emplace_back(Who(session, sessions));
    row["kind"] = "wait";
    row["from_us"] = since(wait.from);
    row["to_us"] = since(wait.to);
  }
  const std::span<const trace::ExecutionRecord> executions = report.waterfall.executions.items();
  for (std::size_t i = 0; i < executions.size(); ++i) {
    const trace::ExecutionRecord& record = executions[i];
    ordered_json& row = rows.emplace_back(Who(record.session, sessions));
    row["kind"] = record.session == session ? "own" : "other";
    if (const auto what = reports.execution_names[i].view(); !what.empty()) row["what"] = what;
    row["from_us"] = since(record.started);
    row["to_us"] = since(record.ended);
    row["device_time_us"] = Us(record.charged);
    row["unfinished"] = record.was_stopped;
    row["cut"] = trace::GetText(record.cut).in_message;
    if (record.cut == Blocker::Cut::kStopped) {
      row["stop_asked_us"] = since(record.stop_asked);
      row["stop_latency_us"] = Us(record.ended - record.stop_asked);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ordered_json& one, const ordered_json& two) {
    return one["from_us"].get<double>() < two["from_us"].get<double>();
  });
  return rows;
}

}  // namespace

std::string ExplainJson(std::uint64_t session, const RequestReports& reports,
                        const std::vector<SessionFacts>& sessions, scheduler::TimePoint now) {
  const RequestReport& report = reports.report;
  ordered_json row = Who(session, sessions);
  row["request"] = report.number;
  row["requests_known"] = {{"first", reports.first}, {"last", reports.last}};
  row["marked"] = report.is_marked;
  row["failed"] = report.has_failed;
  row["open"] = report.is_open;
  if (!report.is_open) row["ended_s_ago"] = SecondsAgo(report.ended, now);
  row["latency_us"] = Us(report.latency());
  if (report.target > Duration::zero()) {
    row["latency_target_us"] = Us(report.target);
    const bool is_target_met = report.latency() <= report.target && !report.has_failed;
    if (!report.is_open || !is_target_met) row["target_met"] = is_target_met;
  }
  const Duration taken = report.ended - report.begun;
  row["before_us"] = Us(report.begun - report.arrived);
  row["waited_us"] = Us(report.waited);
  if (report.throttled > Duration::zero()) {
    row["throttled_us"] = Us(report.throttled);
    row["max_share_percent"] = report.max_share / 10.0;
  }
  if (report.held > Duration::zero()) {
    ordered_json& memory = row["memory"];
    memory["waited_us"] = Us(report.held);
    memory["swapped_in_bytes"] = report.swapped_in_bytes;
    memory["swapped_out_bytes"] = report.evicted_bytes;
    if (report.wakes > 0) {
      memory["wakes"] = report.wakes;
      memory["wakes_in_time"] = report.wakes_in_time;
    }
    if (report.evicted_bytes > 0) memory["swapped_out"] = Who(report.evicted_from, sessions);
  }
  row["on_device_us"] = Us(report.on_device);
  row["host_us"] = Us(taken - report.waited - report.on_device);
  row["device_time_us"] = Us(report.charged);
  row["host_steal_us"] = Us(report.host_steal);
  row["commands"] = report.commands;
  row["stops"] = report.stops;
  if (report.commands > 0) {
    row["longest_command"] = {{"what", report.longest_what.view()},
                              {"us", Us(report.longest_command)}};
  }
  if (report.longest_wait > Duration::zero()) {
    ordered_json& wait = row["longest_wait"];
    wait["us"] = Us(report.longest_wait);
    if (report.blocker.session != 0) wait["behind"] = BlockerJson(report.blocker, sessions);
  }
  ordered_json& others = row["others"] = ordered_json::array();
  for (const RequestReport::Other& other : report.others) {
    if (other.session == 0) continue;
    ordered_json& entry = others.emplace_back(Who(other.session, sessions));
    entry["device_time_us"] = Us(other.charged);
  }
  row["others_rest_us"] = Us(report.charged_to_rest);
  row["is_cut"] = report.is_cut;
  row["waterfall"] = WaterfallJson(session, reports, sessions);
  const Waterfall& waterfall = report.waterfall;
  row["waterfall_rest"] = {{"waits", waterfall.waits.rest_count},
                           {"waited_us", Us(waterfall.waits.rest)},
                           {"commands", waterfall.executions.rest_count},
                           {"on_device_us", Us(waterfall.executions.rest)}};
  // Replaces invalid UTF-8, because kernel names come from clients' modules.
  return row.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace gpushared::server
