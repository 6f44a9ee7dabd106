// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/stats.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string_view>

#include "scheduler/class_name.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

namespace {

using nlohmann::ordered_json;

double Seconds(scheduler::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Returns 100 if `whole` is 0.
double Percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

double Microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1000.0; }

// Names come from clients. The handshake has validated them as UTF-8; `replace` preserves the rest
// of the document in case that check is ever wrong.
std::string Dump(const ordered_json& document) {
  return document.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json ClientRow(const SessionFacts& facts, const ClientSnapshot* seen) {
  ordered_json row;
  row["client"] = facts.session;
  row["name"] = facts.name;
  facts.owner.ForEach([&](std::string_view name, const std::string& value) {
    if (name != "uid") row[std::string(name)] = value;  // The broker reports it as a number.
  });
  row["mode"] = facts.is_gated ? "gate" : "submit";
  row["state"] = facts.state;
  row["age_s"] = facts.age_s;
  row["quota_bytes"] = facts.quota_bytes;
  row["modules"] = facts.modules;
  row["staging_buffers"] = facts.staging_buffers;
  row["staging_bytes"] = facts.staging_bytes;
  const ClientSnapshot absent;
  const ClientSnapshot& client = seen == nullptr ? absent : *seen;
  const ClientCounters& count = client.counters;
  row["class"] = scheduler::ClassName(facts.spec.scheduling_class);
  row["weight"] = facts.spec.weight;
  if (facts.spec.group) row["share_group"] = *facts.spec.group;
  row["max_share_percent"] = facts.caps.Least() / 10.0;
  row["memory_bytes"] = client.mapped_bytes + facts.chunk_bytes;
  row["guaranteed_bytes"] = facts.guaranteed_bytes;
  if (const auto& memory = client.memory) {
    row["resident_bytes"] = memory->resident_bytes;
    row["memory_waited_s"] = Seconds(memory->waited);
    row["swapped_out_bytes"] = memory->moves.out_bytes;
    row["swapped_in_bytes"] = memory->moves.in_bytes;
    row["swap_outs"] = memory->moves.times_out;
    row["is_starved"] = memory->is_starved;
    const scheduler::ParkingState& parking = memory->parking;
    // A held client waits for `wake`, an idle one for its own next command.
    if (parking.is_parked) row["state"] = parking.is_held ? "parked" : "idle";
    if (parking.promised) row["promised_wake_s"] = Seconds(*parking.promised);
    if (parking.wakes > 0) row["last_wake_s"] = Seconds(parking.last_wake);
    row["wakes"] = parking.wakes;
    row["wakes_promised"] = parking.wakes_promised;
    row["wakes_in_time"] = parking.wakes_in_time;
  }
  WriteFigures(count, kClientFigures, row);
  row["queue_wait_p50_us"] = Microseconds(count.queue_wait.Quantile(0.50));
  row["queue_wait_p99_us"] = Microseconds(count.queue_wait.Quantile(0.99));
  if (facts.spec.latency_target) {
    row["latency_target_us"] =
        Microseconds(static_cast<std::uint64_t>(facts.spec.latency_target->count()));
    row["requests_target_met"] = count.requests_target_met;
    row["target_met_percent"] = Percent(count.requests_target_met, count.requests);
  }
  if (facts.spec.latency_target || count.requests > 0) {
    row["requests"] = count.requests;
    row["request_p50_us"] = Microseconds(count.request_latency.Quantile(0.50));
    row["request_p99_us"] = Microseconds(count.request_latency.Quantile(0.99));
    row["request_p999_us"] = Microseconds(count.request_latency.Quantile(0.999));
  }
  row["waited_s"] = Seconds(client.waited);
  row["starved_for_s"] = Seconds(client.starved_for);
  if (client.activity.windows > 0) {
    row["share_error_points"] = client.activity.share_error;
    row["share_error_worst_points"] = client.activity.share_error_worst;
  }
  if (!count.nonpreemptible_kernel.empty()) {
    row["nonpreemptible_kernel"] = count.nonpreemptible_kernel;
    row["nonpreemptible_why"] =
        trace::GetText(count.nonpreemptible_cut).in_column;  // `explain` has the full message.
    row["nonpreemptible_longest_us"] =
        Microseconds(static_cast<std::uint64_t>(count.nonpreemptible_longest.count()));
  }
  row["commands_pending"] = client.commands_pending;
  row["commands_in_flight"] = client.commands_in_flight;
  return row;
}

const ClientSnapshot* Find(const ThreadSnapshot& snapshot, std::uint64_t session) {
  const auto found = std::ranges::find(snapshot.clients, session, &ClientSnapshot::session);
  return found == snapshot.clients.end() ? nullptr : &*found;
}

// Returns, for each class, the number of sessions and waiting clients, and their memory.
ordered_json SessionsByClass(const std::vector<SessionFacts>& sessions,
                             const ThreadSnapshot& snapshot) {
  std::array<ClassNow, scheduler::kClassNames.size()> classes;
  for (const SessionFacts& facts : sessions) {
    ClassNow& of_class = classes.at(static_cast<std::size_t>(facts.spec.scheduling_class));
    ++of_class.sessions;
    of_class.guaranteed_bytes += facts.guaranteed_bytes;
    const ClientSnapshot* const client = Find(snapshot, facts.session);
    if (client == nullptr) continue;
    if (client->commands_pending > 0 && client->commands_in_flight == 0) ++of_class.waiting;
    const std::uint64_t bytes = client->mapped_bytes + facts.chunk_bytes;
    of_class.memory_bytes += bytes;
    // Chunks are always resident, so all of their bytes count.
    of_class.resident_bytes +=
        client->memory ? client->memory->resident_bytes + facts.chunk_bytes : bytes;
    if (facts.quota_bytes == 0) continue;
    const double quota_used = static_cast<double>(bytes) / static_cast<double>(facts.quota_bytes);
    of_class.quota_used_most = std::max(of_class.quota_used_most, quota_used);
  }
  ordered_json rows = ordered_json::object();
  for (std::size_t each = 0; each < classes.size(); ++each) {
    WriteFigures(classes.at(each), kClassNowFigures,
                 rows[std::string(scheduler::kClassNames.at(each))]);
  }
  return rows;
}

ordered_json SessionsByOwner(const std::vector<SessionFacts>& sessions,
                             const ThreadSnapshot& snapshot) {
  std::map<std::string, OwnerNow> owners;
  for (const SessionFacts& facts : sessions) {
    OwnerNow& of_owner = owners[facts.owner.ToRow()];
    ++of_owner.sessions;
    const ClientSnapshot* const client = Find(snapshot, facts.session);
    of_owner.memory_bytes += facts.chunk_bytes + (client == nullptr ? 0 : client->mapped_bytes);
  }
  ordered_json rows = ordered_json::array();
  for (const auto& [owner, now] : owners) {
    ordered_json& row = rows.emplace_back();
    ipc::Owner::FromRow(owner).ForEach(
        [&](std::string_view name, const std::string& value) { row[std::string(name)] = value; });
    WriteFigures(now, kOwnerNowFigures, row);
  }
  return rows;
}

}  // namespace

std::string ClientsJson(const device::DeviceInfo& info, const std::vector<SessionFacts>& sessions,
                        const ThreadSnapshot& snapshot) {
  ordered_json document;
  document["device"] = info.id;
  ordered_json& rows = document["clients"] = ordered_json::array();
  for (const SessionFacts& facts : sessions) {
    rows.push_back(ClientRow(facts, Find(snapshot, facts.session)));
  }
  return Dump(document);
}

std::string StatusJson(const device::DeviceInfo& info, const WorkerFacts& worker,
                       const std::vector<SessionFacts>& sessions, const ThreadSnapshot& snapshot) {
  ordered_json document;
  document["device"] = info.id;
  document["name"] = info.name;
  document["generation"] = worker.generation;
  document["pid"] = worker.pid;
  document["age_s"] = worker.age_s;
  document["policy"] = worker.policy;
  const scheduler::PolicyOptions& options = worker.policy_options;
  document["slice_ms"] = std::chrono::duration<double, std::milli>(options.slice).count();
  document["low_floor"] = options.low_floor;
  document["draining"] = worker.is_draining;
  document["clients"] = sessions.size();
  std::uint64_t mapped_bytes = 0;
  for (const ClientSnapshot& client : snapshot.clients) mapped_bytes += client.mapped_bytes;
  for (const SessionFacts& facts : sessions) mapped_bytes += facts.chunk_bytes;
  document["classes"] = SessionsByClass(sessions, snapshot);
  document["owners"] = SessionsByOwner(sessions, snapshot);
  document["memory_bytes"] = info.memory_bytes;
  document["mapped_bytes"] = mapped_bytes;
  WriteFigures(snapshot.thread, kThreadFigures, document);
  const scheduler::TargetReport& targets = snapshot.thread.targets;
  document["targets_abandoned"] = {{"high", targets.abandoned[0]},
                                   {"normal", targets.abandoned[1]},
                                   {"low", targets.abandoned[2]}};
  const ActivityMeter::Gaps& gaps = snapshot.thread.gaps;
  document["gap_s"] = Seconds(gaps.wanted);
  if (gaps.wanted > scheduler::Duration::zero()) {
    document["gap_used_percent"] = 100.0 * Seconds(gaps.used) / Seconds(gaps.wanted);
  }
  document["targets_at_risk"] = targets.at_risk;
  document["overloaded"] = targets.is_overloaded;
  const CostModel::Accuracy& predictions = snapshot.thread.predictions;
  document["predictions"] = predictions.predictions;
  document["predictions_exceeded_percent"] =
      predictions.predictions == 0 ? 0.0 : Percent(predictions.exceeded, predictions.predictions);
  document["prediction_error_p50_percent"] =
      static_cast<double>(predictions.error_permille.Quantile(0.50)) / 10.0;
  document["prediction_error_p90_percent"] =
      static_cast<double>(predictions.error_permille.Quantile(0.90)) / 10.0;
  if (const auto launch_bubble = snapshot.thread.launch_bubble) {
    document["launch_bubble_us"] = Microseconds(static_cast<std::uint64_t>(launch_bubble->count()));
  }
  document["lookahead_us"] =
      Microseconds(static_cast<std::uint64_t>(snapshot.thread.lookahead.count()));
  document["executor_bytes"] = worker.executor_bytes;
  document["graphs_bytes"] = worker.graphs_bytes;
  document["graphs_bytes_max"] = worker.graphs_bytes_max;
  if (worker.overcommit) {
    OvercommitNow now = *worker.overcommit;
    static_cast<scheduler::MemoryRequestStats&>(now) =
        snapshot.thread.memory_requests.value_or(scheduler::MemoryRequestStats());
    WriteFigures(now, kOvercommitFigures, document["overcommit"]);
  }
  ordered_json gpu = ordered_json::object();
  WriteFigures(worker.gpu, kGpuFigures, gpu);
  if (!gpu.empty()) document["gpu"] = std::move(gpu);
  const loader::LoaderFacts& loader = worker.loader;
  document["loader"] = {{"running", loader.running},
                        {"waiting", loader.waiting},
                        {"read", loader.read},
                        {"rejected", loader.rejected},
                        {"crashed", loader.crashed},
                        {"unplaced_bytes", loader.unplaced_bytes},
                        {"cache_bytes", loader.cache_bytes},
                        {"cache_hits", loader.cache_hits}};
  return Dump(document);
}

std::string ParkedJson(std::uint64_t session, std::uint64_t bytes,
                       const scheduler::ParkingState& parking) {
  ordered_json document;
  document["client"] = session;
  document["parked"] = parking.is_parked;
  document["held"] = parking.is_held;
  document["bytes"] = bytes;
  if (parking.promised) document["promised_wake_s"] = Seconds(*parking.promised);
  return Dump(document);
}

std::string DeviceJson(const device::DeviceInfo& info, const WorkerFacts& worker) {
  ordered_json document;
  document["device"] = info.id;
  document["name"] = info.name;
  document["kind"] = info.kind;
  document["generation"] = worker.generation;
  document["memory_bytes"] = info.memory_bytes;
  document["multiprocessors"] = info.multiprocessors;
  document["threads_per_block_max"] = info.threads_per_block_max;
  document["shared_bytes_per_block_max"] = info.shared_bytes_per_block_max;
  document["preemption"] = info.preemption == device::Preemption::kWithinCommand
                               ? "within commands"
                               : "between commands";
  document["spinning_pays"] = info.spinning_pays;
  document["device_thread"] = worker.device_thread;
  document["control_thread"] = worker.control_thread;
  if (!worker.numa.empty()) document["numa"] = worker.numa;
  for (const device::SmGrant& grant : info.sm_grants) {
    const auto of_class = static_cast<scheduler::SchedulingClass>(grant.of_class);
    document["sm_limits"].push_back({{"class", scheduler::ClassName(of_class)},
                                     {"asked", grant.asked},
                                     {"granted", grant.granted}});
  }
  return Dump(document);
}

}  // namespace gpushared::server
