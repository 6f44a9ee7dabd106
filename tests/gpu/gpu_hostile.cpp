// SPDX-License-Identifier: Apache-2.0
// Malicious kernels next to a harmless client, on a server that contains them and lets kernels of
// class low run for 0.2 s: checks that all of them end as they should, with the neighbour's memory
// unchanged.
//
// gpu_hostile [--rows FILE] [--part NAME] [--without-endless]
//   --rows FILE         appends the findings; run.sh describes rows.
//   --part NAME         the part that rows belong to (hostile).
//   --without-endless   omits kernels that only a time limit ends.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/client.h"

#include "tests/support/hostile_kernels.h"

namespace gpushared::testing {
namespace {

constexpr std::size_t kNeighbourBytes = std::size_t{1} << 20;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}

struct Options {
  std::string rows, part = "hostile";
  bool without_endless = false;
};

// The kernels that did not end as they should, with the reasons.
struct Findings {
  std::size_t kernels = 0;
  std::string ends;
  std::string lost_by;
  std::string changes;
  std::string finds;
  int wrong_ends = 0;
  int losses = 0;
  int changed = 0;
  int found = 0;
};

// Retries, because a server whose worker has died rejects clients for a moment.
Client Connect(const char* name, SchedulingClass scheduling_class) {
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    Result<Client> client = Client::Connect({.name = name, .scheduling_class = scheduling_class});
    if (client.ok() || std::chrono::steady_clock::now() > end) return Must(std::move(client));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Both clients, and the neighbour's memory.
struct Place {
  explicit Place(const std::vector<std::uint8_t>& bytes)
      : neighbour(Connect("neighbour", SchedulingClass::kNormal)),
        client(Connect("hostile", SchedulingClass::kLow)),
        memory(Must(neighbour.AllocateDevice(bytes.size()))) {
    const Status written =
        neighbour.default_stream().CopyToDevice(memory.address(), bytes.data(), bytes.size());
    if (!written.ok()) throw std::runtime_error(written.ToString());
  }

  const Client neighbour, client;
  const DeviceBuffer memory;
};

// Writes each kernel's row when the kernel has ended. If a kernel destroyed the worker, the others
// run on a new one.
Findings RunAll(const Options& options, std::ostream& rows) {
  Findings found;
  std::vector<std::uint8_t> bytes(kNeighbourBytes), now(kNeighbourBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(kOthersBit | i * 7);
  }
  auto place = std::make_unique<Place>(bytes);
  for (const HostileKernel& hostile : HostileKernels()) {
    if (options.without_endless && hostile.contained == HostileKernel::End::kIsEnded) continue;
    ++found.kernels;
    if (place == nullptr) place = std::make_unique<Place>(bytes);
    const Status left = LeaveResidue(place->neighbour);
    if (!left.ok()) throw std::runtime_error("the neighbour's kernel: " + left.ToString());
    const DeviceAddress others = place->memory.address();
    const Stream& stream = place->neighbour.default_stream();
    const HostileOutcome outcome = RunHostile(place->client, hostile, others + kNeighbourBytes / 2);
    const Status& status = outcome.status;
    std::printf("%s: %s\n", hostile.name, status.ToString().c_str());
    if (outcome.found_others) found.finds += std::string(hostile.name) + " ";
    found.found += outcome.found_others ? 1 : 0;
    const std::string why = WhyNotItsEnd(hostile, HostilePlace::kContained, status);
    if (!why.empty()) {
      ++found.wrong_ends;
      found.ends += std::string(hostile.name) + ": " + why + "; ";
    }
    const Status read = stream.CopyToHost(now.data(), others, now.size());
    if (read.ok() && now != bytes) {
      ++found.changed;
      found.changes += std::string(hostile.name) + " ";
    }
    // If the neighbour's session has ended, the neighbour's memory has been freed.
    if (!read.ok()) {
      ++found.losses;
      found.lost_by += std::string(hostile.name) + ": " + read.ToString() + " ";
      place.reset();
    }
    rows << options.part << "\tkernel '" << hostile.name << "'\t"
         << (why.empty() ? "as it should" : "otherwise") << "\t-\tfact\t-\t"
         << (why.empty() ? status.ToString() : why) << std::endl;
  }
  return found;
}

void WriteFindings(const Options& options, const Findings& found, std::ostream& rows) {
  const auto row = [&](const char* what, std::size_t count, const char* kind, const char* must,
                       const std::string& note) {
    rows << options.part << '\t' << what << '\t' << count << "\t-\t" << kind << '\t' << must << '\t'
         << note << '\n';
  };
  const auto rule = [&](const char* what, int count, const std::string& note) {
    row(what, static_cast<std::size_t>(count), "rule", "== 0", note);
  };
  row("kernels that mean harm", found.kernels, "fact", "-", "");
  rule("of these, ended otherwise than they should", found.wrong_ends, found.ends);
  rule("of these, took the neighbour's session along", found.losses, found.lost_by);
  rule("of these, changed a neighbour's memory", found.changed, found.changes);
  rule("of these, saw what others left or have", found.found, found.finds);
}

// Returns false for an unknown option.
bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--without-endless") {
      options.without_endless = true;
    } else if ((word == "--rows" || word == "--part") && i + 1 < argc) {
      (word == "--rows" ? options.rows : options.part) = argv[++i];
    } else {
      return false;
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: gpu_hostile [--rows FILE] [--part NAME] [--without-endless]\n");
    return 2;
  }
  try {
    std::ofstream rows;
    if (!options.rows.empty()) rows.open(options.rows, std::ios::app);
    if (!options.rows.empty() && !rows)
      throw std::runtime_error("cannot write '" + options.rows + "'");
    WriteFindings(options, RunAll(options, rows), rows);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_hostile: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) { return gpushared::testing::Main(argc, argv); }
