// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/drop_in_cost.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}
template <typename T>
T Must(Result<T> result) {
  Must(result.status());
  return std::move(result).value();
}
void Must(CUresult code) {
  if (code != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(code));
}

// The measured operations, through either interface. The kernel is almost empty.
class NativeClient {
 public:
  static constexpr const char* kName = "client library";

  NativeClient(const std::string& socket, std::size_t bytes)
      : client_(Must(Client::Connect({.name = "native", .socket = socket}))),
        kernel_(Must(Must(client_.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS)).GetKernel("step"))),
        memory_(Must(client_.AllocateDevice(bytes))),
        stream_(client_.default_stream()) {}

  void Launch() const { Must(stream_.Launch(kernel_, {}, memory_, 0)); }
  void Wait() const { Must(stream_.Synchronize()); }
  void ToDevice(const void* host, std::size_t bytes) const {
    Must(stream_.CopyToDevice(memory_.address(), host, bytes));
  }
  void ToHost(void* host, std::size_t bytes) const {
    Must(stream_.CopyToHost(host, memory_.address(), bytes));
  }

 private:
  Client client_;
  Kernel kernel_;
  DeviceBuffer memory_;
  Stream stream_;
};

class DriverProgram {
 public:
  static constexpr const char* kName = "drop-in";

  DriverProgram(const std::string& socket, std::size_t bytes) {
    ::setenv("GPUSHARED_SOCKET", socket.c_str(), 1);
    CUcontext context = nullptr;
    Must(cuInit(0));
    Must(cuDevicePrimaryCtxRetain(&context, 0));
    Must(cuCtxSetCurrent(context));
    std::ifstream file(GPUSHARED_SYSTEM_KERNELS, std::ios::binary);
    const std::string image((std::istreambuf_iterator<char>(file)), {});
    CUmodule module = nullptr;
    Must(cuModuleLoadData(&module, image.c_str()));
    Must(cuModuleGetFunction(&kernel_, module, "step"));
    Must(cuMemAlloc(&memory_, bytes));
  }
  // Releasing the last context ends the session and frees its resources.
  ~DriverProgram() { (void)cuDevicePrimaryCtxRelease(0); }
  DriverProgram(const DriverProgram&) = delete;
  DriverProgram& operator=(const DriverProgram&) = delete;

  void Launch() const {
    CUdeviceptr memory = memory_;
    int number = 0;
    void* parameters[] = {&memory, &number};
    Must(cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  }
  void Wait() const { Must(cuStreamSynchronize(nullptr)); }
  void ToDevice(const void* host, std::size_t bytes) const {
    Must(cuMemcpyHtoD(memory_, host, bytes));
  }
  void ToHost(void* host, std::size_t bytes) const { Must(cuMemcpyDtoH(host, memory_, bytes)); }

 private:
  CUfunction kernel_ = nullptr;
  CUdeviceptr memory_ = 0;
};

// Which of the two interfaces connects to the server first.
enum Order : std::uint8_t { kLibraryFirst, kDropInFirst };

// Times of the same work through each interface, the client library's and the drop-in's.
//
// Work takes several times as long while client and worker have to wake each other, and such a
// phase can last for many rounds. Therefore the interfaces are compared within each round, and all
// rounds of an order have the same weight, as do both orders.
class Pair {
 public:
  void Add(int which, std::chrono::nanoseconds value) {
    all_[which].Add(value);
    round_[which].Add(value);
  }
  void EndRound(Order order) {
    ratios_[order].push_back(round_[0].Percentile(0.5) / round_[1].Percentile(0.5));
    for (Samples& samples : round_) samples = {};
  }
  const Samples& all(int which) const { return all_[which]; }
  // Returns the median, over the rounds of an order, of the client library's time divided by the
  // drop-in's.
  double Ratio(Order order) const {
    std::vector<double> sorted = ratios_[order];
    std::ranges::sort(sorted);
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
  double Ratio() const { return std::sqrt(Ratio(kLibraryFirst) * Ratio(kDropInFirst)); }

 private:
  Samples all_[2], round_[2];
  std::vector<double> ratios_[2];
};

struct Copies {
  std::size_t bytes;
  const char* name;
  int per_round;
  Pair to_device = {}, to_host = {};
};

struct Figures {
  Pair launch, round_trip;
  Copies copies[2] = {{.bytes = 64 << 10, .name = "64 KiB", .per_round = 20},
                      {.bytes = 16 << 20, .name = "16 MiB", .per_round = 4}};

  void EndRound(Order order) {
    launch.EndRound(order);
    round_trip.EndRound(order);
    for (Copies& each : copies) {
      each.to_device.EndRound(order);
      each.to_host.EndRound(order);
    }
  }
};

template <typename Interface>
void Round(const Interface& through, int which, std::vector<std::byte>& host, Figures& figures) {
  constexpr int kBurst = 64;  // Launches; the ring has space for all of them.
  for (int burst = 0; burst < 20; ++burst) {
    through.Launch();  // Not measured, because it wakes the worker.
    const auto begin = Clock::now();
    for (int i = 1; i < kBurst; ++i) through.Launch();
    figures.launch.Add(which, (Clock::now() - begin) / (kBurst - 1));
    through.Wait();
  }
  for (int i = 0; i < 100; ++i) {
    const auto begin = Clock::now();
    through.Launch();
    through.Wait();
    figures.round_trip.Add(which, Clock::now() - begin);
  }
  for (Copies& copies : figures.copies) {
    for (int i = 0; i < copies.per_round; ++i) {
      const auto begin = Clock::now();
      through.ToDevice(host.data(), copies.bytes);
      through.Wait();
      const auto half = Clock::now();
      through.ToHost(host.data(), copies.bytes);
      copies.to_device.Add(which, half - begin);
      copies.to_host.Add(which, Clock::now() - half);
    }
  }
}

void Compare(Report& report, const std::string& what, const Pair& pair) {
  report.Add(what + ", " + NativeClient::kName, pair.all(0));
  report.Add(what + ", " + DriverProgram::kName, pair.all(1));
}

void CompareTimes(Report& report, const std::string& what, const Pair& pair) {
  Compare(report, what, pair);
  report.AddValue(what + ", drop-in's time", 1 / pair.Ratio(), "of the client library's");
}

void CompareRates(Report& report, const std::string& what, const Pair& pair) {
  Compare(report, what, pair);
  const std::string rate = what + ", drop-in's rate";
  report.AddValue(rate, pair.Ratio(), "of the client library's");
  report.AddValue(rate + ", library's session first", pair.Ratio(kLibraryFirst),
                  "of the client library's");
  report.AddValue(rate + ", drop-in's session first", pair.Ratio(kDropInFirst),
                  "of the client library's");
}

}  // namespace

// Even two identical sessions copy 64 KiB at rates that differ by up to 6 % as long as both live,
// and either may be the faster one. Therefore the interfaces are compared in several pairs of
// sessions, in both orders.
void MeasureDropIn(Report& report) {
  constexpr int kPairs = 4;  // For each order.
  constexpr int kRounds = 8;
  Figures figures;
  std::vector<std::byte> host(figures.copies[1].bytes, std::byte{1});
  const ServerProcess server({"--log-level", "warn"});
  for (int pair = 0; pair < 2 * kPairs; ++pair) {
    const Order order = pair % 2 == 0 ? kLibraryFirst : kDropInFirst;
    std::optional<NativeClient> native;
    if (order == kLibraryFirst) native.emplace(server.socket(), host.size());
    const DriverProgram program(server.socket(), host.size());
    if (!native) native.emplace(server.socket(), host.size());
    for (int round = 0; round < kRounds; ++round) {
      // The first interface's work affects the caches and cores for the second one, so the order
      // alternates.
      if (round % 2 == 0) Round(*native, 0, host, figures);
      Round(program, 1, host, figures);
      if (round % 2 != 0) Round(*native, 0, host, figures);
      figures.EndRound(order);
    }
  }
  CompareTimes(report, "launch with space in the ring, mean of 63", figures.launch);
  CompareTimes(report, "null launch and synchronise", figures.round_trip);
  for (const Copies& copies : figures.copies) {
    CompareRates(report, std::string(copies.name) + " to the device, until complete",
                 copies.to_device);
    CompareRates(report, std::string(copies.name) + " to the host", copies.to_host);
  }
}

}  // namespace gpushared::testing
