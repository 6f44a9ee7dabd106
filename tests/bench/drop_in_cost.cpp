// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/drop_in_cost.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
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

// What is measured, through either interface. The kernel does next to nothing.
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

struct Copies {
  std::size_t bytes;
  const char* name;
  int per_round;
  Samples to_device[2] = {}, to_host[2] = {};
};

// By interface: the client library's, the drop-in's.
struct Figures {
  Samples launch[2], round_trip[2];
  Copies copies[2] = {{.bytes = 64 << 10, .name = "64 KiB", .per_round = 20},
                      {.bytes = 16 << 20, .name = "16 MiB", .per_round = 4}};
};

template <typename Interface>
void Round(const Interface& through, int which, std::vector<std::byte>& host, Figures& figures) {
  constexpr int kBurst = 64;  // The ring has room for them.
  for (int burst = 0; burst < 20; ++burst) {
    through.Launch();  // Wakes the worker.
    const auto begin = Clock::now();
    for (int i = 1; i < kBurst; ++i) through.Launch();
    figures.launch[which].Add(static_cast<double>((Clock::now() - begin).count()) / (kBurst - 1));
    through.Wait();
  }
  for (int i = 0; i < 100; ++i) {
    const auto begin = Clock::now();
    through.Launch();
    through.Wait();
    figures.round_trip[which].Add(Clock::now() - begin);
  }
  for (Copies& copies : figures.copies) {
    for (int i = 0; i < copies.per_round; ++i) {
      const auto begin = Clock::now();
      through.ToDevice(host.data(), copies.bytes);
      through.Wait();
      const auto half = Clock::now();
      through.ToHost(host.data(), copies.bytes);
      copies.to_device[which].Add(half - begin);
      copies.to_host[which].Add(Clock::now() - half);
    }
  }
}

void Compare(Report& report, const std::string& what, const Samples (&samples)[2]) {
  report.Add(what + ", " + NativeClient::kName, samples[0]);
  report.Add(what + ", " + DriverProgram::kName, samples[1]);
}

double Median(const Samples& samples) { return samples.Percentile(0.5); }

void CompareTimes(Report& report, const std::string& what, const Samples (&samples)[2]) {
  Compare(report, what, samples);
  report.AddValue(what + ", drop-in's time", Median(samples[1]) / Median(samples[0]),
                  "of the client library's");
}

void CompareRates(Report& report, const std::string& what, const Samples (&samples)[2]) {
  Compare(report, what, samples);
  report.AddValue(what + ", drop-in's rate", Median(samples[0]) / Median(samples[1]),
                  "of the client library's");
}

}  // namespace

void MeasureDropIn(Report& report) {
  constexpr int kRounds = 50;
  Figures figures;
  std::vector<std::byte> host(figures.copies[1].bytes, std::byte{1});
  const ServerProcess server({"--log-level", "warn"});
  const NativeClient native(server.socket(), host.size());
  const DriverProgram program(server.socket(), host.size());
  for (int round = 0; round < kRounds; ++round) {
    // Who comes second finds caches and cores as the other left them: each is second in turns.
    if (round % 2 == 0) Round(native, 0, host, figures);
    Round(program, 1, host, figures);
    if (round % 2 != 0) Round(native, 0, host, figures);
  }
  CompareTimes(report, "launch with room in the ring, mean of 63", figures.launch);
  CompareTimes(report, "null launch and synchronise", figures.round_trip);
  for (const Copies& copies : figures.copies) {
    CompareRates(report, std::string(copies.name) + " to the device and there", copies.to_device);
    CompareRates(report, std::string(copies.name) + " to the host", copies.to_host);
  }
}

}  // namespace gpushared::testing
