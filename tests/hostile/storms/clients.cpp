// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/clients.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "tests/hostile/storms/processes.h"

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kBlocks = 8, kThreadsPerBlock = 64, kWords = kBlocks * kThreadsPerBlock;
constexpr std::uint32_t kFactor = 1664525, kSummand = 1013904223;
constexpr std::uint32_t kTrialRounds = 2000;

// Applies a step of a pseudo-random generator to out[i] `rounds` times.
constexpr char kWorkPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r5, [%rd1];
again:
  mad.lo.u32 %r5, %r5, 1664525, 1013904223;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  st.global.u32 [%rd1], %r5;
  ret;
}
)";

std::uint32_t Generated(std::uint32_t value, std::uint32_t rounds) {
  for (std::uint32_t i = 0; i < rounds; ++i) value = value * kFactor + kSummand;
  return value;
}

// A session with everything that a request needs.
class Service {
 public:
  static Result<Service> Open(const ClientPlan& plan, const std::string& name) {
    Service service;
    Result<Client> client = Client::Connect(
        {.name = name, .scheduling_class = plan.scheduling_class, .socket = plan.socket});
    if (!client.ok()) return client.status();
    service.client_ = *std::move(client);
    const Status prepared = service.Prepare();
    if (!prepared.ok()) return prepared;
    return service;
  }

  // Copies words to the device, runs three kernels on them, and copies the words back.
  Status Answer(std::uint32_t rounds) {
    const LaunchShape shape = {.grid = {kBlocks, 1, 1}, .block = {kThreadsPerBlock, 1, 1}};
    const std::uint32_t half = std::max<std::uint32_t>(1, rounds / 2);
    Status status = stream_.CopyToDevice(memory_, input_.data(), input_.size());
    for (const std::uint32_t each : {rounds, half, half}) {
      if (status.ok()) status = stream_.Launch(kernel_, shape, memory_, each);
    }
    if (status.ok()) status = stream_.CopyToHost(output_.data(), memory_, output_.size());
    if (status.ok()) status = stream_.Synchronize();
    return status;
  }
  // Checks the first and the last word of the last answer. Then increments the input words, so that
  // the next answer differs.
  bool IsRight(std::uint32_t rounds) {
    const std::uint32_t all = rounds + 2 * std::max<std::uint32_t>(1, rounds / 2);
    const std::span<std::uint32_t> in = input_.as<std::uint32_t>();
    const std::span<std::uint32_t> out = output_.as<std::uint32_t>();
    // Two words are enough, so that the check costs less than the request.
    const bool is_right =
        out.front() == Generated(in.front(), all) && out.back() == Generated(in.back(), all);
    for (std::uint32_t& word : in) ++word;
    return is_right;
  }

 private:
  Status Prepare() {
    Result<Module> module = client_.LoadModule(std::string_view(kWorkPtx));
    if (!module.ok()) return module.status();
    Result<Kernel> kernel = module->GetKernel("work");
    Result<DeviceBuffer> memory = client_.AllocateDevice(kWords * sizeof(std::uint32_t));
    Result<HostBuffer> input = client_.AllocateHost(kWords * sizeof(std::uint32_t));
    Result<HostBuffer> output = client_.AllocateHost(kWords * sizeof(std::uint32_t));
    for (const Status& status :
         {kernel.status(), memory.status(), input.status(), output.status()}) {
      if (!status.ok()) return status;
    }
    kernel_ = *std::move(kernel);
    memory_ = *std::move(memory);
    input_ = *std::move(input);
    output_ = *std::move(output);
    stream_ = client_.default_stream();
    std::span<std::uint32_t> words = input_.as<std::uint32_t>();
    for (std::uint32_t i = 0; i < kWords; ++i) words[i] = i;
    return {};
  }

  Client client_;
  Kernel kernel_;
  DeviceBuffer memory_;
  HostBuffer input_, output_;
  Stream stream_;
};

// Opens a service, retrying until it succeeds. The first rejection is reported.
Service OpenAtLast(const ClientPlan& plan, const std::string& name, FirstWords& words) {
  for (;;) {
    Result<Service> service = Service::Open(plan, name);
    if (service.ok()) return *std::move(service);
    AddMessage(words, service.status().ToString());
    std::this_thread::sleep_for(20ms);
  }
}

std::int64_t TimedAnswer(Service& service, std::uint32_t rounds) {
  const std::int64_t begin = NowNs();
  (void)service.Answer(rounds);
  return NowNs() - begin;
}

// Returns the rounds with which a request takes kServiceNs. Takes the lower quartile of several
// trials, because the machine may be busy.
std::uint32_t Calibrate(Service& service, Board& board) {
  constexpr std::size_t kTrials = 40;
  const auto quartile = [&](std::uint32_t rounds) {
    std::array<std::int64_t, kTrials> times{};
    for (std::int64_t& time : times) time = TimedAnswer(service, rounds);
    std::ranges::nth_element(times, times.begin() + kTrials / 4);
    return times[kTrials / 4];
  };
  const std::int64_t short_ns = quartile(1), long_ns = quartile(kTrialRounds);
  const double per_round =
      static_cast<double>(std::max<std::int64_t>(1, long_ns - short_ns)) / kTrialRounds;
  const double rounds =
      static_cast<double>(std::max<std::int64_t>(0, kServiceNs - short_ns)) / per_round;
  const std::uint32_t chosen = static_cast<std::uint32_t>(std::max(1.0, rounds));
  board.service_ns = quartile(chosen);
  return chosen;
}

void SleepUntil(std::int64_t time_ns) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time_ns)));
}

// Runs one new client, from connecting to its result.
Status ComeAndGo(const ClientPlan& plan, Board& board) {
  Sample& result = board.results.Begin(NowNs());
  const auto finish = [](Sample& sample, const Status& status) {
    sample.took_ns =
        status.ok() ? std::max<std::int64_t>(1, NowNs() - sample.began_ns) : Sample::kRejected;
    return status;
  };
  Sample& welcome = board.welcomes.Begin(NowNs());
  Result<Client> client = Client::Connect(
      {.name = "new_client", .scheduling_class = plan.scheduling_class, .socket = plan.socket});
  if (!finish(welcome, client.status()).ok()) return finish(result, client.status());
  Sample& load = board.loads.Begin(NowNs());
  Result<Module> module = client->LoadModule(std::string_view(kWorkPtx));
  if (!finish(load, module.status()).ok()) return finish(result, module.status());
  Result<Kernel> kernel = module->GetKernel("work");
  Result<DeviceBuffer> memory = client->AllocateDevice(sizeof(std::uint32_t));
  if (!memory.ok()) return finish(result, memory.status());
  std::uint32_t word = 7;
  const Stream stream = client->default_stream();
  Status status = stream.CopyToDevice(*memory, &word, sizeof word);
  if (status.ok()) status = stream.Launch(*kernel, {}, *memory, std::uint32_t{3});
  if (status.ok()) status = stream.CopyToHost(&word, *memory, sizeof word);
  if (status.ok() && word != Generated(7, 3)) {
    ++board.wrong_results;
    status = {StatusCode::kInternal, "a new client's result is wrong"};
  }
  return finish(result, status);
}

}  // namespace

void AddMessage(FirstWords& words, const std::string& message) {
  if (words.taken.exchange(true)) return;
  std::strncpy(words.text.data(), message.c_str(), words.text.size() - 1);
}

std::int64_t ArrivalNs(std::int64_t first_arrival_ns, std::size_t index) {
  // A hash, so that no other periodic activity on the machine stays in step with these arrivals.
  const std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15;
  const auto jitter =
      static_cast<std::int64_t>((mixed >> 20) % static_cast<std::uint64_t>(kRequestPeriodNs / 2));
  return first_arrival_ns + static_cast<std::int64_t>(index) * kRequestPeriodNs + jitter;
}

void BeHonest(const ClientPlan& plan, Board& board) {
  Service service = OpenAtLast(plan, "honest", board.honest_words);
  const std::uint32_t rounds = Calibrate(service, board);
  const std::int64_t first = NowNs() + kRequestPeriodNs;
  board.first_arrival_ns = first;
  for (std::size_t index = 0;; ++index) {
    const std::int64_t arrival = ArrivalNs(first, index);
    SleepUntil(arrival);
    Sample& sample = board.requests.Begin(arrival);
    for (Status status = service.Answer(rounds); !status.ok(); status = service.Answer(rounds)) {
      AddMessage(board.honest_words, status.ToString());
      ++board.reconnects;
      service = OpenAtLast(plan, "honest", board.honest_words);
    }
    sample.took_ns = std::max<std::int64_t>(1, NowNs() - arrival);
    if (!service.IsRight(rounds)) ++board.wrong_results;
  }
}

void SendNewClients(const ClientPlan& plan, Board& board) {
  std::atomic<int> under_way{0};
  for (std::int64_t next = NowNs();; next += kNewClientPeriodNs) {
    SleepUntil(next);
    if (under_way >= kNewClientsAtOnce) {
      ++board.new_clients_left_out;
      continue;
    }
    ++under_way;
    std::thread([&] {
      const Status status = ComeAndGo(plan, board);
      if (!status.ok()) AddMessage(board.new_client_words, status.ToString());
      --under_way;
    }).detach();
  }
}

}  // namespace gpushared::storms
