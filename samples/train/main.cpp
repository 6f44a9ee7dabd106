// SPDX-License-Identifier: Apache-2.0
// Trains the language model on a text file: the batch job that fills the gaps.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpushared/client.h"

#include "samples/language_model/device_model.h"
#include "samples/language_model/model.h"
#include "samples/language_model/options.h"

namespace {

using Clock = std::chrono::steady_clock;
using samples::Batch;
using samples::Model;

// Device and reference use different exp, log and tanh, each within a few units in the
// last place of a float. After kCheckedSteps steps the parameters agree this closely.
constexpr int kCheckedSteps = 2;
constexpr double kDifferenceMax = 1e-4;
// Limit of the reference's multiply-adds per checked step, about half a second. If a whole batch
// needs more, the checked batch repeats fewer distinct rows, and the reference computes only these.
constexpr double kCheckedMultiplyAddsMax = 2e8;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || text.empty()) throw std::runtime_error("cannot read text file '" + path + "'");
  return text;
}

struct Outcome {
  std::vector<float> losses;  // One per step.
  double seconds = 0;
};

int Run(int argc, char** argv) {
  samples::Options options({
      {"--text", "", "text file to learn"},
      {"--model", "",
       "model file: read if it exists, written at the end; empty keeps it in memory"},
      {"--steps", "200", "steps of gradient descent; 0 means until --seconds are over"},
      {"--seconds", "0", "stop after this time; 0 means after --steps"},
      {"--batch", "128", "contexts per step"},
      {"--hidden", "256", "width of the hidden layer of a new model"},
      {"--rate", "0.5", "learning rate"},
      {"--seed", "1", "seed of initial parameters and batches"},
      {"--class", "low", "scheduling class: high, normal or low"},
      {"--name", "train", "shown by gpusharedctl"},
      {"--device", "", "device to use; empty lets the server choose"},
      {"--start-at", "0", "begin at this Unix time in seconds, to start together with others"},
      {"--json", "", "write the outcome to this file"},
  });
  if (!options.Parse(argc, argv,
                     "train: learns a character-level language model through gpushared")) {
    return 0;
  }
  const std::string text = ReadText(options.Text("--text"));
  const std::string& path = options.Text("--model");
  const int steps_max = options.Integer("--steps", 0, 1'000'000'000);
  const double seconds_max = options.Number("--seconds", 0, 1e6);
  if (steps_max == 0 && seconds_max == 0)
    throw std::runtime_error("--steps and --seconds cannot both be 0");
  const int rows = options.Integer("--batch", 1, 1 << 16);
  const auto rate = static_cast<float>(options.Number("--rate", 0, 100));
  const auto seed = static_cast<std::uint32_t>(options.Integer("--seed", 0, 1 << 30));

  Model model;
  if (!path.empty() && std::ifstream(path).good()) {
    model = samples::LoadModel(path);
  } else {
    samples::Shape shape;
    shape.hidden = options.Integer("--hidden", 1, 1 << 16);
    model = samples::RandomModel(shape, seed);
  }

  const gpushared::Client client =
      samples::Require(gpushared::Client::Connect({.name = options.Text("--name"),
                                                   .scheduling_class = options.Class("--class"),
                                                   .device = options.Text("--device")}));
  samples::DeviceModel device_model(client, model, rows);
  const auto batch = [&](std::uint64_t step) {
    return samples::DrawBatch(text, model.shape, rows, seed, step);
  };

  // The first steps are made twice, on the device and in plain C++, and compared. They also time
  // the kernels; the fastest step counts, because any disturbance makes a kernel take longer.
  const int distinct = samples::RowsForReferenceStep(model.shape, rows, kCheckedMultiplyAddsMax);
  Outcome outcome;
  Model reference = model;
  double longest_kernel_ms = std::numeric_limits<double>::infinity();
  std::uint64_t step = 0;
  for (; step < kCheckedSteps; ++step) {
    const Batch checked = samples::DrawBatch(text, model.shape, distinct, seed, step);
    longest_kernel_ms =
        std::min(longest_kernel_ms,
                 device_model.TimeKernelsOfStep(samples::Repeat(checked, rows / distinct), rate));
    outcome.losses.push_back(device_model.FinishStep());
    ReferenceStep(reference, checked, rate);
  }
  const double difference =
      samples::LargestDifference(device_model.Parameters(), reference.parameters);
  const bool agrees = difference <= kDifferenceMax;

  const double late_s = samples::SleepUntilUnixTime(options.Number("--start-at", 0, 1e11));
  const Clock::time_point begin = Clock::now();
  std::uint64_t measured = 0;
  Batch next = batch(step);
  do {
    device_model.QueueStep(next, rate);
    next = batch(++step);  // Drawn while the device is busy.
    outcome.losses.push_back(device_model.FinishStep());
    ++measured;
    outcome.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } while ((steps_max == 0 || step < static_cast<std::uint64_t>(steps_max)) &&
           (seconds_max == 0 || outcome.seconds < seconds_max));

  model.parameters = device_model.Parameters();
  if (!path.empty()) SaveModel(model, path);

  const double rate_of_steps = static_cast<double>(measured) / outcome.seconds;
  std::printf(
      "train on %s: %llu steps in %.2f s (%.2f steps/s), longest kernel %.2f ms, loss %.3f -> "
      "%.3f; "
      "first %d steps %s the reference "
      "(largest difference %.1e, allowed %.0e)\n",
      client.device().id.c_str(), static_cast<unsigned long long>(measured), outcome.seconds,
      rate_of_steps, longest_kernel_ms, static_cast<double>(outcome.losses.front()),
      static_cast<double>(outcome.losses.back()), kCheckedSteps,
      agrees ? "agree with" : "DIFFER from", difference, kDifferenceMax);
  if (const std::string& json = options.Text("--json"); !json.empty()) {
    std::ofstream file(json);
    file << "{\"device\": \"" << client.device().id << "\", \"steps\": " << measured
         << ", \"seconds\": " << outcome.seconds << ", \"late_s\": " << late_s
         << ", \"longest_kernel_ms\": " << longest_kernel_ms
         << ", \"loss_first\": " << outcome.losses.front()
         << ", \"loss_last\": " << outcome.losses.back()
         << ", \"results_checked\": " << (agrees ? "true" : "false") << "}\n";
    if (!file) throw std::runtime_error("cannot write '" + json + "'");
  }
  return agrees ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
