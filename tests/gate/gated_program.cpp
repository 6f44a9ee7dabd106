// SPDX-License-Identifier: Apache-2.0
// A program that uses the driver API and is linked against libcuda.so.1. It launches kernels of
// known length (shared_gpu.cpp) and prints its measurements as one line of JSON.
//
// gated_program serve --requests N --every US --kernels N --kernel US
//   A request of N kernels every US, each awaited. p50, p99, worst: time of a request in us.
// gated_program train --ms N --kernel US [--threads N] [--graph N] [--batch N]
//   Kernels back to back, with --graph as graphs of N kernels. Awaits all after each --batch (100).
//   `waits`: when launches returned that took more than 5 ms, in ns of the monotonic clock.
// gated_program overhead --launches N
//   ns per launch over a driver whose kernels take no time: the median of 15 rounds.
// gated_program traps NAME
//   One of: capture, context, copies, fork, forms, gpus, stall, streams, threads. Exit code 0 if
//   every call returned what it should. `forms` launches ten times by each of eight functions,
//   `copies` makes thirty large copies, and `gpus` launches 300 times on GPU 0 and 600 on GPU 1.
// gated_program memory NAME MIB
//   A case of gated_memory.cpp under a memory limit of so many MiB. Exit code as for traps.

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>

#include "tests/gate/gated_memory.h"

// CUDA 13's header does not declare these functions in this form, but every driver exports them.
extern "C" {
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig*, CUfunction, void**, void**);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, unsigned, CUstream, void**);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);
}

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

void Check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::printf("{\"failed\": \"%s\", \"code\": %d}\n", what, static_cast<int>(code));
  std::exit(1);
}

class Program {
 public:
  explicit Program(int gpu = 0) {
    Check(cuInit(0), "cuInit");
    Check(cuCtxCreate_v2(&context_, 0, gpu), "cuCtxCreate");
    CUmodule module = nullptr;
    Check(cuModuleLoadData(&module, "image"), "cuModuleLoadData");
    Check(cuModuleGetFunction(&function_, module, "kernel"), "cuModuleGetFunction");
  }
  void Launch(unsigned us, CUstream stream = nullptr) {
    Check(cuLaunchKernel(function_, us, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr),
          "cuLaunchKernel");
  }
  CUcontext context() const { return context_; }
  CUfunction function() const { return function_; }

 private:
  CUcontext context_ = nullptr;
  CUfunction function_ = nullptr;
};

double Us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

using Options = std::map<std::string, long>;
unsigned Get(const Options& options, const char* name, long otherwise) {
  const auto found = options.find(name);
  return static_cast<unsigned>(found == options.end() ? otherwise : found->second);
}

void SleepUntil(Clock::time_point at) {
  std::this_thread::sleep_until(at - microseconds(100));
  while (Clock::now() < at) {
  }
}

int Serve(const Options& options) {
  Program program;
  CUstream stream = nullptr;
  Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
  const unsigned kernels = Get(options, "kernels", 10), kernel = Get(options, "kernel", 20);
  const microseconds every(Get(options, "every", 5000));
  const unsigned requests = Get(options, "requests", 200);
  std::vector<double> took;
  double longest_launch = 0;
  Clock::time_point next = Clock::now();
  for (unsigned i = 0; i < requests; ++i) {
    SleepUntil(next);
    const auto start = Clock::now();
    for (unsigned k = 0; k < kernels; ++k) {
      const auto launched = Clock::now();
      program.Launch(kernel, stream);
      longest_launch = std::max(longest_launch, Us(Clock::now() - launched));
    }
    Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    took.push_back(Us(Clock::now() - start));
    next = std::max(next + every, Clock::now());
  }
  std::ranges::sort(took);
  std::printf(
      "{\"requests\": %zu, \"p50\": %.1f, \"p99\": %.1f, \"worst\": %.1f, "
      "\"longest_launch\": %.1f}\n",
      took.size(), took[took.size() / 2], took[took.size() * 99 / 100], took.back(),
      longest_launch);
  return 0;
}

int Train(const Options& options) {
  Program program;
  const unsigned kernel = Get(options, "kernel", 200), batch = Get(options, "batch", 100);
  const unsigned graph_kernels = Get(options, "graph", 0);
  const milliseconds time(Get(options, "ms", 1000));
  std::atomic<std::uint64_t> launches{0};
  std::atomic<double> longest{0};
  std::mutex waits_mutex;
  std::string waits;
  const auto begin = Clock::now();
  const auto run = [&] {
    Check(cuCtxSetCurrent(program.context()), "cuCtxSetCurrent");
    CUstream stream = nullptr;
    Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
    CUgraphExec exec = nullptr;
    if (graph_kernels > 0) {
      CUgraph graph = nullptr;
      Check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
      for (unsigned k = 0; k < graph_kernels; ++k) program.Launch(kernel, stream);
      Check(cuStreamEndCapture(stream, &graph), "end capture");
      Check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    }
    while (Clock::now() - begin < time) {
      for (unsigned i = 0; i < batch && Clock::now() - begin < time; ++i) {
        const auto launched = Clock::now();
        if (exec != nullptr) {
          Check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
        } else {
          program.Launch(kernel, stream);
        }
        const auto returned = Clock::now();
        longest = std::max(longest.load(), Us(returned - launched));
        if (returned - launched > milliseconds(5)) {
          const std::lock_guard lock(waits_mutex);
          waits +=
              (waits.empty() ? "" : ", ") + std::to_string(returned.time_since_epoch().count());
        }
        ++launches;
      }
      Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < Get(options, "threads", 1); ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  const double seconds = Us(Clock::now() - begin) / 1e6;
  const double device_s =
      static_cast<double>(launches) * kernel * (graph_kernels > 0 ? graph_kernels : 1) / 1e6;
  std::printf(
      "{\"launches\": %llu, \"seconds\": %.3f, \"part\": %.4f, \"longest_launch\": %.1f, "
      "\"waits\": [%s]}\n",
      static_cast<unsigned long long>(launches), seconds, device_s / seconds, longest.load(),
      waits.c_str());
  return 0;
}

int Overhead(const Options& options) {
  Program program;
  CUstream stream = nullptr;
  Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
  const unsigned launches = Get(options, "launches", 200'000);
  std::vector<double> rounds;
  for (int round = 0; round < 15; ++round) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < launches; ++i) program.Launch(1, stream);
    rounds.push_back(Us(Clock::now() - start) * 1000 / launches);
  }
  std::ranges::sort(rounds);
  std::printf("{\"ns\": %.1f, \"least\": %.1f}\n", rounds[rounds.size() / 2], rounds.front());
  return 0;
}

// ---- traps

// Launches while another thread captures are neither marked nor delayed.
int Capture() {
  Program program;
  CUstream capturing = nullptr, other = nullptr;
  Check(cuStreamCreate(&capturing, 1), "cuStreamCreate");
  Check(cuStreamCreate(&other, 1), "cuStreamCreate");
  for (int round = 0; round < 3; ++round) {
    CUgraph graph = nullptr;
    Check(cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
    for (int i = 0; i < 200; ++i) program.Launch(10, capturing);
    for (int i = 0; i < 200; ++i) program.Launch(10, other);
    Check(cuStreamEndCapture(capturing, &graph), "end capture");
    Check(cuStreamSynchronize(other), "cuStreamSynchronize");
    // From here on, launches are marked again.
    for (int i = 0; i < 200; ++i) program.Launch(10, other);
    Check(cuStreamSynchronize(other), "cuStreamSynchronize");
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Captures begin and end while another thread is about to mark its launches.
  std::atomic<bool> is_over{false};
  std::thread launches([&] {
    Check(cuCtxSetCurrent(program.context()), "cuCtxSetCurrent");
    while (!is_over) program.Launch(60, other);
  });
  for (int i = 0; i < 2000; ++i) {
    CUgraph graph = nullptr;
    Check(cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
    for (int k = 0; k < 200; ++k) program.Launch(10, capturing);
    Check(cuStreamEndCapture(capturing, &graph), "end capture");
    for (int k = 0; k < 200; ++k) cuStreamIsCapturing(capturing, &status);
  }
  is_over = true;
  launches.join();
  return 0;
}

int Forms() {
  Program program;
  const CUfunction function = program.function();
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
  Check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
  program.Launch(20, stream);
  Check(cuStreamEndCapture(stream, &graph), "end capture");
  Check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  CUlaunchConfig config = {};
  config.gridDimX = 20;
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  for (int i = 0; i < 10; ++i) {
    program.Launch(20);
    Check(cuLaunchKernel_ptsz(function, 20, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "ptsz");
    Check(cuLaunchKernelEx(&config, function, nullptr, nullptr), "Ex");
    Check(cuLaunchKernelEx_ptsz(&config, function, nullptr, nullptr), "Ex_ptsz");
    Check(cuLaunchCooperativeKernel(function, 20, 1, 1, 1, 1, 1, 0, nullptr, nullptr), "coop");
    Check(cuLaunchCooperativeKernel_ptsz(function, 20, 1, 1, 1, 1, 1, 0, nullptr, nullptr),
          "coop_ptsz");
    Check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    Check(cuGraphLaunch_ptsz(exec, stream), "cuGraphLaunch_ptsz");
  }
  Check(cuCtxSynchronize(), "cuCtxSynchronize");
  // The last launches are counted when their turn ends.
  std::this_thread::sleep_for(milliseconds(50));
  return 0;
}

int Copies() {
  Program program;
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  for (int i = 0; i < 10; ++i) {
    Check(cuMemcpyHtoDAsync(0, nullptr, kLarge, nullptr), "cuMemcpyHtoDAsync");
    Check(cuMemcpyHtoDAsync(0, nullptr, kLarge - 1, nullptr), "cuMemcpyHtoDAsync");
    Check(cuMemcpyHtoD(0, nullptr, 3 * kLarge), "cuMemcpyHtoD");
    Check(cuMemcpyHtoD(0, nullptr, 4), "cuMemcpyHtoD");
    Check(cuMemsetD32Async(0, 0, kLarge / 4, nullptr), "cuMemsetD32Async");
    Check(cuMemsetD32Async(0, 0, kLarge / 4 - 1, nullptr), "cuMemsetD32Async");
  }
  Check(cuCtxSynchronize(), "cuCtxSynchronize");
  // The last copies are counted when their turn ends.
  std::this_thread::sleep_for(milliseconds(50));
  return 0;
}

int Gpus() {
  Program programs[] = {Program(0), Program(1)};
  for (unsigned i = 0; i < 900; ++i) {
    Program& program = programs[i % 3 == 0 ? 0 : 1];
    Check(cuCtxSetCurrent(program.context()), "cuCtxSetCurrent");
    program.Launch(20);
    if (i % 100 == 99) Check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  for (Program& program : programs) {
    Check(cuCtxSetCurrent(program.context()), "cuCtxSetCurrent");
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  // The last launches are counted when their turns end.
  std::this_thread::sleep_for(milliseconds(50));
  for (Program& program : programs) Check(cuCtxDestroy_v2(program.context()), "cuCtxDestroy");
  return 0;
}

int Contexts() {
  for (int round = 0; round < 5; ++round) {
    Program program;
    for (int i = 0; i < 100; ++i) program.Launch(20);
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
    Check(cuCtxDestroy_v2(program.context()), "cuCtxDestroy");
  }
  return 0;
}

int Fork() {
  Program program;
  for (int i = 0; i < 100; ++i) program.Launch(20);
  const pid_t child = ::fork();
  if (child == 0) {
    program.Launch(20);
    std::_Exit(7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int i = 0; i < 100; ++i) program.Launch(20);
  return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1;
}

// Streams that are created and destroyed, far more of them than there are slots.
int Streams() {
  Program program;
  for (int round = 0; round < 2000; ++round) {
    CUstream stream = nullptr;
    Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
    program.Launch(5, stream);
    Check(cuStreamDestroy_v2(stream), "cuStreamDestroy");
  }
  return 0;
}

int Threads() {
  Program program;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      Check(cuCtxSetCurrent(program.context()), "cuCtxSetCurrent");
      CUstream stream = nullptr;
      Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
      for (int i = 0; i < 300; ++i) program.Launch(10, i % 2 == 0 ? stream : nullptr);
      Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// Launches behind a kernel that takes 300 ms must return before this kernel ends.
int Stall() {
  Program program;
  CUstream stream = nullptr;
  Check(cuStreamCreate(&stream, 1), "cuStreamCreate");
  // No launch of this grid has been measured, so its predicted time is short.
  const auto start = Clock::now();
  program.Launch(300'000, stream);
  program.Launch(10, stream);
  program.Launch(10, stream);
  const double took = Us(Clock::now() - start);
  std::printf("{\"took\": %.1f}\n", took);
  return took < 250'000 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  // Stops the main thread, but not the modelled GPU, which SIGSTOP would stop as well.
  ::signal(SIGUSR1, [](int) {
    for (;;) ::pause();
  });
  const std::string what = count > 1 ? arguments[1] : "";
  if (what == "traps" && count == 3) {
    const std::map<std::string, int (*)()> traps = {
        {"capture", Capture}, {"context", Contexts}, {"copies", Copies},
        {"fork", Fork},       {"forms", Forms},      {"gpus", Gpus},
        {"stall", Stall},     {"streams", Streams},  {"threads", Threads}};
    const auto trap = traps.find(arguments[2]);
    return trap == traps.end() ? 2 : trap->second();
  }
  if (what == "memory" && count == 4) {
    return RunMemoryCase(arguments[2], static_cast<std::size_t>(std::atol(arguments[3])));
  }
  Options options;
  for (int i = 2; i + 1 < count; i += 2) options[arguments[i] + 2] = std::atol(arguments[i + 1]);
  if (what == "serve") return Serve(options);
  if (what == "train") return Train(options);
  if (what == "overhead") return Overhead(options);
  std::fprintf(stderr, "gated_program: serve, train, overhead, traps or memory\n");
  return 2;
}
