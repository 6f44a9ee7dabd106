// SPDX-License-Identifier: Apache-2.0
// Answers next-character requests with the language model: an inference server with a latency
// target. Arrivals are open-loop: a late answer makes the next request wait, but does not delay its
// arrival.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/client.h"

#include "samples/language_model/device_model.h"
#include "samples/language_model/model.h"
#include "samples/language_model/options.h"
#include "samples/serve/arrivals.h"

namespace {

using Clock = std::chrono::steady_clock;

// Maximum difference between a device's and the reference's probability.
constexpr double kDifferenceMax = 1e-4;
// The service time is measured under the conditions of real requests, on a previously idle device
// and idle cores, because a virtual machine answers back-to-back requests up to three times faster.
constexpr int kCalibrationRequests = 100;
constexpr std::chrono::milliseconds kCalibrationPause{5};
// One in this many answers is kept and compared with the reference afterwards.
constexpr std::size_t kCheckEvery = 16;
// Limit of the reference's multiply-adds over all answers, about a second. It determines how many
// rows of each kept answer are compared, at least one.
constexpr double kCheckedMultiplyAddsMax = 4e8;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double Percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(fraction * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

struct Outcome {
  double busy_s = 0;                 // Time with at least one request in the server.
  std::vector<double> latencies_ms;  // Time from the arrival of each request to its answer.
  // Time from the start of each request to its answer. A request starts when it arrives, or when
  // the previous one has ended if that is later.
  std::vector<double> times_ms;
  double largest_difference = 0;
};

class Server {
 public:
  Server(const gpushared::Client& client, const samples::Model& model, int rows)
      : model_(model), device_model_(client, model, rows), rows_(rows) {}

  // Returns the time of one request when no other waits, as a median, because a stall of the
  // machine is not service time.
  double ServiceMilliseconds() {
    std::vector<double> taken_ms;
    for (int i = 0; i < kCalibrationRequests; ++i) {
      const std::vector<int> contexts = RequestContexts(static_cast<std::size_t>(i));
      std::this_thread::sleep_for(kCalibrationPause);
      const Clock::time_point begin = Clock::now();
      device_model_.Probabilities(contexts);
      taken_ms.push_back(Milliseconds(Clock::now() - begin));
    }
    return Percentile(std::move(taken_ms), 0.5);
  }

  Outcome Serve(const std::vector<double>& arrivals) {
    Outcome outcome;
    std::vector<std::vector<float>> kept;
    const Clock::time_point begin = Clock::now();
    Clock::time_point answered = begin;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      const auto arrival = begin + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(arrivals[i]));
      const std::vector<int> contexts = RequestContexts(i);
      std::this_thread::sleep_until(arrival);
      const Clock::time_point begun = std::max(arrival, answered);
      const std::span<const float> answer =
          device_model_.Probabilities(contexts, Clock::now() - arrival);
      answered = Clock::now();
      outcome.times_ms.push_back(Milliseconds(answered - begun));
      outcome.busy_s += outcome.times_ms.back() / 1000;
      outcome.latencies_ms.push_back(Milliseconds(answered - arrival));
      if (i % kCheckEvery == 0) {
        const auto part = Part(answer, samples::kCharacters, RowsToCheck(i, arrivals.size()));
        kept.emplace_back(part.begin(), part.end());
      }
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const std::size_t number = i * kCheckEvery;
      const std::vector<int> contexts = RequestContexts(number);
      const auto part = Part(std::span<const int>(contexts), model_.shape.context,
                             RowsToCheck(number, arrivals.size()));
      const std::vector<float> expected =
          ReferenceProbabilities(model_, {part.begin(), part.end()});
      outcome.largest_difference =
          std::max(outcome.largest_difference, samples::LargestDifference(kept[i], expected));
    }
    return outcome;
  }

 private:
  // Returns the input of request `number`: arbitrary characters, the same each time.
  std::vector<int> RequestContexts(std::size_t number) const {
    std::vector<int> contexts(static_cast<std::size_t>(rows_) *
                              static_cast<std::size_t>(model_.shape.context));
    for (std::size_t i = 0; i < contexts.size(); ++i) {
      contexts[i] = static_cast<int>((number * 31 + i * i * 7 + i) % samples::kCharacters);
    }
    return contexts;
  }

  samples::RowRange RowsToCheck(std::size_t number, std::size_t requests) const {
    return samples::RowsToCheck(model_.shape, rows_, (requests + kCheckEvery - 1) / kCheckEvery,
                                number / kCheckEvery, kCheckedMultiplyAddsMax);
  }
  // Returns these rows of a matrix whose rows have `width` elements.
  template <typename T>
  static std::span<const T> Part(std::span<const T> matrix, int width, samples::RowRange rows) {
    const auto elements = static_cast<std::size_t>(width);
    return matrix.subspan(rows.first * elements, rows.count * elements);
  }

  const samples::Model& model_;
  samples::DeviceModel device_model_;
  const int rows_;
};

void WriteJson(const std::string& path, const std::string& device,
               const std::vector<double>& arrivals, const Outcome& outcome, double service_ms,
               double load, double busy, double latency_target_ms, double late_s, bool checked) {
  std::ofstream file(path);
  file << "{\"device\": \"" << device << "\", \"service_ms\": " << service_ms
       << ", \"p50_ms\": " << Percentile(outcome.latencies_ms, 0.5)
       << ", \"p99_ms\": " << Percentile(outcome.latencies_ms, 0.99) << ", \"load\": " << load
       << ", \"busy\": " << busy << ", \"latency_target_ms\": " << latency_target_ms
       << ", \"late_s\": " << late_s << ", \"results_checked\": " << (checked ? "true" : "false");
  const auto list = [&](const char* name, const std::vector<double>& values, double unit) {
    file << ", \"" << name << "\": [";
    for (std::size_t i = 0; i < values.size(); ++i)
      file << (i == 0 ? "" : ", ") << values[i] * unit;
    file << ']';
  };
  list("arrivals_ms", arrivals, 1000);
  list("latencies_ms", outcome.latencies_ms, 1);
  list("times_ms", outcome.times_ms, 1);
  file << "}\n";
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

int Run(int argc, char** argv) {
  samples::Options options({
      {"--model", "", "model file, as train writes it"},
      {"--requests", "500", "requests to answer; 0 means as many as fit into --seconds"},
      {"--seconds", "0", "time over which requests arrive, if --requests is 0"},
      {"--batch", "32", "contexts per request"},
      {"--load", "0.45", "service time divided by the mean inter-arrival time"},
      {"--service-ms", "0", "service time of a request alone; 0 measures it first"},
      {"--trace", "", "CSV file with arrival times to use instead of generated ones"},
      {"--variation", "1.5",
       "coefficient of variation of generated inter-arrival times: 1 is a Poisson process"},
      {"--seed", "1", "seed of the generated arrivals"},
      {"--latency-target-ms", "25", "latency target per request"},
      {"--class", "high", "scheduling class: high, normal or low"},
      {"--name", "serve", "shown by gpusharedctl"},
      {"--device", "", "device to use; empty lets the server choose"},
      {"--start-at", "0", "begin at this Unix time in seconds, to start together with others"},
      {"--json", "", "write the outcome to this file"},
  });
  if (!options.Parse(argc, argv, "serve: answers next-character requests through gpushared"))
    return 0;
  const samples::Model model = samples::LoadModel(options.Text("--model"));
  const double latency_target_ms = options.Number("--latency-target-ms", 0.001, 1e6);
  const double load = options.Number("--load", 0.001, 100);
  const auto seed = static_cast<std::uint32_t>(options.Integer("--seed", 0, 1 << 30));

  const gpushared::Client client = samples::Require(gpushared::Client::Connect(
      {.name = options.Text("--name"),
       .scheduling_class = options.Class("--class"),
       .latency_target = std::chrono::duration_cast<std::chrono::nanoseconds>(
           std::chrono::duration<double, std::milli>(latency_target_ms)),
       .device = options.Text("--device")}));
  Server server(client, model, options.Integer("--batch", 1, 1 << 16));
  const double given_ms = options.Number("--service-ms", 0, 1e6);
  const double service_ms = given_ms > 0 ? given_ms : server.ServiceMilliseconds();
  const double gap_s = service_ms / load / 1000;

  auto requests = static_cast<std::size_t>(options.Integer("--requests", 0, 100'000'000));
  if (requests == 0)
    requests = static_cast<std::size_t>(options.Number("--seconds", 0, 1e6) / gap_s);
  if (requests == 0)
    throw std::runtime_error("no request fits: give --requests, or more --seconds");
  const std::string& trace = options.Text("--trace");
  const double variation = options.Number("--variation", 0.1, 10);
  const std::vector<double> arrivals =
      trace.empty() ? samples::BurstyArrivals(requests, gap_s, seed, variation)
                    : samples::TraceArrivals(trace, requests, gap_s, seed);

  const double late_s = samples::SleepUntilUnixTime(options.Number("--start-at", 0, 1e11));
  const Outcome outcome = server.Serve(arrivals);
  const double busy = outcome.busy_s / (arrivals.back() + outcome.latencies_ms.back() / 1000);
  const bool checked = outcome.largest_difference <= kDifferenceMax;
  const auto late = std::count_if(outcome.latencies_ms.begin(), outcome.latencies_ms.end(),
                                  [&](double latency) { return latency > latency_target_ms; });
  std::printf(
      "serve on %s: %zu requests, service %.2f ms, load %.2f, busy %.2f, p50 %.2f ms, p99 %.2f ms, "
      "target of "
      "%.0f ms met "
      "%.2f %%; answers %s the reference (largest difference %.1e, allowed %.0e)\n",
      client.device().id.c_str(), requests, service_ms, load, busy,
      Percentile(outcome.latencies_ms, 0.5), Percentile(outcome.latencies_ms, 0.99),
      latency_target_ms, 100.0 * (1.0 - static_cast<double>(late) / static_cast<double>(requests)),
      checked ? "agree with" : "DIFFER from", outcome.largest_difference, kDifferenceMax);
  if (const std::string& json = options.Text("--json"); !json.empty()) {
    WriteJson(json, client.device().id, arrivals, outcome, service_ms, load, busy,
              latency_target_ms, late_s, checked);
  }
  return checked ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "serve: %s\n", error.what());
    return 1;
  }
}
