// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_worker.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <span>
#include <variant>

#include "gpushared/check.h"
#include "gpushared/result.h"

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/layout.h"
#include "ipc/wire/validate.h"

namespace gpushared::testing {

using ipc::SharedSegment;

namespace {

ipc::Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(10); }

SharedSegment MakeSegment(std::size_t bytes, bool peers_read_only) {
  Result<SharedSegment> segment =
      SharedSegment::Create({.bytes = bytes, .peers_read_only = peers_read_only});
  Check(segment.ok(), "test segment can be made");
  return std::move(*segment);
}

ipc::UniqueFd MakeEventfd() {
  Result<ipc::UniqueFd> eventfd = ipc::MakeDoorbell();
  Check(eventfd.ok(), "test doorbell can be made");
  return std::move(*eventfd);
}

ipc::DeviceDescription FakeDevice() {
  return {.name = "fake device",
          .id = "fake:0",
          .kind = "fake",
          .memory_bytes = std::uint64_t{1} << 30,
          .multiprocessors = 1,
          .threads_per_block_max = 512,
          .block_max = {512, 512, 64},
          .grid_max = {1 << 20, 65535, 65535},
          .shared_bytes_per_block_max = 48 * 1024,
          // Limits of textures of one to three dimensions, the threads of a multiprocessor, limits
          // of linear textures; shared memory, registers and blocks of a multiprocessor.
          .attributes = {{21, 4096},
                         {22, 4096},
                         {23, 4096},
                         {24, 256},
                         {25, 256},
                         {26, 256},
                         {39, 2048},
                         {69, 4096},
                         {70, 4096},
                         {71, 4096},
                         {72, 65536},
                         {81, 64 * 1024},
                         {82, 65536},
                         {106, 16}}};
}

struct Failure {
  std::uint64_t sequence = 0;
  Status status;
};

}  // namespace

// A client's session, with its segments and its memory. Run serves it on the calling thread.
class FakeWorker::Session {
 public:
  Session(FakeWorker& worker, ipc::UniqueFd socket)
      : worker_(worker),
        socket_(std::move(socket)),
        commands_(MakeSegment(ipc::kCommandSegmentBytes, false)),
        completions_(MakeSegment(ipc::kCompletionSegmentBytes, true)),
        page_(MakeSegment(ipc::kWorkerPageBytes, true)),
        eventfd_(MakeEventfd()),
        reader_(commands_.As<ipc::CommandSegment>().granules, Completions().granules_taken),
        writer_(Completions().granules, commands_.As<ipc::CommandSegment>().completions_taken),
        wake_(Completions().event, commands_.As<ipc::CommandSegment>().waiting) {}

  void Run(std::uint32_t request) {
    if (!Welcome(request)) return;
    ipc::WorkerSleep sleep(page_.As<ipc::WorkerPage>());
    while (!worker_.stopping_ && !worker_.kill_ && !over_) {
      if (EndIfTold()) return;
      const bool sleeps = sleep.Announce([&] { return worker_.taking_ && reader_.HasRecord(); });
      pollfd fds[2] = {{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                       {.fd = eventfd_.get(), .events = POLLIN, .revents = 0}};
      // Short waits, because polling is the only way to notice a change of the test's settings.
      ::poll(fds, 2, sleeps ? 2 : 0);
      if (sleeps) sleep.Cancel();
      if ((fds[1].revents & POLLIN) != 0) {
        std::uint64_t count;
        static_cast<void>(!::read(eventfd_.get(), &count, sizeof count));
      }
      if (fds[0].revents != 0 && worker_.answering_ && !Control()) return;
      if (worker_.sends_unrequested_.exchange(false))
        static_cast<void>(ipc::SendMessage(socket_.get(), 99, ipc::Done{}, Soon()));
      Work();
    }
  }

 private:
  ipc::CompletionSegment& Completions() { return completions_.As<ipc::CompletionSegment>(); }

  bool EndIfTold() {
    const std::lock_guard lock(worker_.mutex_);
    if (!worker_.end_) return false;
    static_cast<void>(
        ipc::SendMessage(socket_.get(), 0, ipc::Ended{.status = *worker_.end_}, Soon()));
    return true;
  }

  bool Welcome(std::uint32_t request) {
    ipc::Welcome welcome;
    welcome.generation = 1;
    welcome.session = kSession;
    welcome.spin_ns = worker_.options_.spin_ns;
    welcome.quota_bytes = worker_.options_.quota_bytes;
    welcome.space_base = kBase;
    welcome.space_bytes = std::uint64_t{1} << 32;
    welcome.staging_bytes_total_max = worker_.options_.staging_bytes_total_max;
    welcome.mapping_base = kBase + (std::uint64_t{1} << 31);
    welcome.mapping_bytes = std::uint64_t{1} << 30;
    welcome.device = FakeDevice();
    const std::array<int, 4> fds = {commands_.fd(), completions_.fd(), page_.fd(), eventfd_.get()};
    return ipc::SendMessage(socket_.get(), request, welcome, Soon(), fds).ok();
  }

  // Handles one request. Returns false when the session is over.
  bool Control() {
    Result<ipc::Frame> frame = ipc::ReceiveFrame(socket_.get(), ipc::ClientFrameRules, Soon());
    if (!frame.ok()) return false;
    const Lie lie = worker_.lie_.exchange(Lie::kNone);
    if (lie == Lie::kOtherRequest) ++frame->request;
    if (lie == Lie::kOtherKind) return Reply(*frame, ipc::ErrorText{});
    switch (static_cast<ipc::MessageType>(frame->type)) {
      case ipc::MessageType::kMakeImage:
        return MakeImage(*frame);
      case ipc::MessageType::kLoadModule:
        return Load(*frame);
      case ipc::MessageType::kUnloadModule: {
        const auto unload = ipc::Decode<ipc::UnloadModule>(frame->payload);
        const std::lock_guard lock(worker_.mutex_);
        worker_.unloaded_.push_back(unload->module);
        return Reply(*frame, ipc::Done{});
      }
      case ipc::MessageType::kResizeMemory:
        return Resize(*frame);
      case ipc::MessageType::kChangeChunk:
      case ipc::MessageType::kSetKernelMemory:
        return Reply(*frame, ipc::Done{});
      case ipc::MessageType::kAddStagingBuffer:
        return AddStagingBuffer(*frame);
      case ipc::MessageType::kDescribeError: {
        const auto describe = ipc::Decode<ipc::DescribeError>(frame->payload);
        const Failure& failure = failures_[describe->stream];
        return Reply(*frame, ipc::ErrorText{.stream = describe->stream,
                                            .sequence = failure.sequence,
                                            .status = failure.status});
      }
      default:
        return false;
    }
  }

  template <typename Message>
  bool Reply(const ipc::Frame& frame, const Message& message, std::span<const int> fds = {}) {
    return ipc::SendMessage(socket_.get(), frame.request, message, Soon(), fds).ok();
  }
  bool Reject(const ipc::Frame& frame, StatusCode code, const char* sentence) {
    return Reply(frame, ipc::Rejected{.status = Status(code, sentence)});
  }

  bool MakeImage(const ipc::Frame& frame) {
    const auto make = ipc::Decode<ipc::MakeImage>(frame.payload);
    if (!make.ok()) return false;
    Result<ipc::UniqueFd> memory = ipc::MakeFixedMemory("image", make->bytes);
    if (!memory.ok()) return false;
    image_ = *std::move(memory);
    image_bytes_ = make->bytes;
    const int fd = image_.get();
    return Reply(frame, ipc::ImageMade{.bytes = make->bytes}, {&fd, 1});
  }

  bool Load(const ipc::Frame& frame) {
    const auto load = ipc::Decode<ipc::LoadModule>(frame.payload);
    if (!load.ok() || load->bytes != image_bytes_) return false;
    image_bytes_ = 0;
    std::this_thread::sleep_for(worker_.load_takes_.load());
    const auto image = SharedSegment::Map(std::move(image_), {.bytes = load->bytes});
    if (!image.ok()) return Reject(frame, StatusCode::kInternal, "image cannot be mapped");
    if (image->size() >= 3 && std::memcmp(image->bytes().data(), "bad", 3) == 0) {
      return Reject(frame, StatusCode::kInvalidArgument, "line 1 column 1: unexpected 'bad'");
    }
    return Reply(
        frame,
        ipc::ModuleLoaded{.module = load->module, .kernels = Kernels(), .variables = Variables()});
  }

  bool Resize(const ipc::Frame& frame) {
    const auto resize = ipc::Decode<ipc::ResizeMemory>(frame.payload);
    if (!resize.ok()) return false;
    {
      const std::lock_guard lock(worker_.mutex_);
      worker_.resizes_.push_back(resize->bytes);
    }
    if (resize->bytes > worker_.options_.quota_bytes) {
      return Reject(frame, StatusCode::kOutOfMemory, "the quota is used up");
    }
    memory_.resize((resize->bytes + kMapPageBytes - 1) / kMapPageBytes * kMapPageBytes);
    return Reply(frame, ipc::MemoryResized{.mapped_bytes = memory_.size()});
  }

  bool AddStagingBuffer(const ipc::Frame& frame) {
    const auto add = ipc::Decode<ipc::AddStagingBuffer>(frame.payload);
    if (!add.ok()) return false;
    if (staging_buffers_.size() >= worker_.options_.staging_buffers_max ||
        staging_bytes_ + add->bytes > worker_.options_.staging_bytes_total_max) {
      return Reject(frame, StatusCode::kOutOfMemory, "no more staging buffers");
    }
    staging_bytes_ += add->bytes;
    staging_buffers_.push_back(MakeSegment(add->bytes, false));
    ++worker_.staging_buffers_added_;
    const int fd = staging_buffers_.back().fd();
    return Reply(frame,
                 ipc::StagingBufferAdded{
                     .staging_buffer = static_cast<std::uint32_t>(staging_buffers_.size() - 1),
                     .bytes = add->bytes},
                 {&fd, 1});
  }

  void Work() {
    bool did_any = false;
    while (worker_.taking_) {
      const ipc::ReadResult result = reader_.TryRead(record_);
      if (result == ipc::ReadResult::kEmpty) break;
      did_any = true;
      TakenCommand taken;
      ipc::Violation violation = ipc::ValidateCommand(record_, taken.command);
      if (violation.ok()) violation = session_log_.Accept(taken.command);
      if (result == ipc::ReadResult::kPeerBroken || !violation.ok()) {
        const std::lock_guard lock(worker_.mutex_);
        worker_.violations_.push_back(
            violation.ok() ? "broken ring" : ipc::DescribeViolation(violation, record_).message());
        over_ = true;
        return;
      }
      Keep(std::move(taken));
    }
    while (worker_.finishing_ && !queued_.empty()) {
      Execute(queued_.front());
      queued_.pop_front();
      did_any = true;
    }
    if (did_any) ipc::FutexWake(wake_.futex(), wake_.Ring().left_asleep);
  }

  void Keep(TakenCommand taken) {
    auto* launch = std::get_if<ipc::LaunchCommand>(&taken.command.body);
    if (auto* set = std::get_if<ipc::SetGraphNodeCommand>(&taken.command.body)) {
      launch = std::get_if<ipc::LaunchCommand>(&set->content);
    }
    if (launch != nullptr) {
      const std::byte* first = launch->inline_parameters.data();
      if (launch->parameters_in_staging_buffer) {
        const ipc::StagingRange& range = launch->staging_parameters;
        first = staging_buffers_[range.staging_buffer].bytes().data() + range.offset;
      }
      taken.parameters.assign(first, first + launch->parameter_bytes);
      launch->inline_parameters = {};  // Refers to the record, which will be overwritten.
    }
    queued_.push_back(taken.command);
    const std::lock_guard lock(worker_.mutex_);
    worker_.taken_.push_back(std::move(taken));
    ++worker_.taken_count_;
  }

  void Execute(const ipc::Command& command) {
    const auto [stream, sequence] = command.id;
    Failure& failure = failures_[stream];
    if (std::holds_alternative<ipc::CreateStreamCommand>(command.body)) failure = {};
    if (failure.status.ok()) {
      ++executed_;
      Status status = std::visit([&](const auto& body) { return Do(body); }, command.body);
      {
        const std::lock_guard lock(worker_.mutex_);
        const auto planned = worker_.failures_.find({stream, sequence});
        if (planned != worker_.failures_.end()) status = planned->second;
      }
      if (!status.ok()) {
        failure = {.sequence = sequence, .status = status};
        const bool is_fault = status.code() == StatusCode::kKernelFault;
        Complete(ipc::CompletionKind::kError, command.id, status.code(),
                 is_fault ? FaultKind::kMisalignedAddress : FaultKind::kNone);
      }
    }
    if (std::holds_alternative<ipc::MarkCommand>(command.body)) {
      Complete(ipc::CompletionKind::kMark, command.id, failure.status.code());
    }
    Completions().timeline[stream].store(sequence, std::memory_order_release);
  }

  // Sends a completion. Its times advance by 1,000 ns per executed command.
  void Complete(ipc::CompletionKind kind, ipc::CommandId id, StatusCode code,
                FaultKind fault = FaultKind::kNone) {
    ipc::CompletionRecord record;
    record.header.op = static_cast<std::uint8_t>(kind);
    record.header.sequence = id.sequence;
    record.stream = id.stream;
    record.code = static_cast<std::uint32_t>(code);
    record.fault = static_cast<std::uint32_t>(fault);
    record.started_ns = record.ended_ns = 1000 * executed_;
    while (writer_.TryWrite(record) == ipc::WriteResult::kFull && !worker_.stopping_) {
      wake_.Ring();
      std::this_thread::yield();
    }
  }

  // Returns the bytes at a device address, or null if the range is not mapped.
  std::byte* Device(std::uint64_t address, std::uint64_t bytes) {
    if (address < kBase || !ipc::RangeInside(address - kBase, bytes, memory_.size())) {
      return nullptr;
    }
    return memory_.data() + (address - kBase);
  }
  static Status NotMapped() {
    return Status(StatusCode::kInvalidArgument, "range is outside of mapped memory");
  }
  std::byte* Host(const ipc::StagingRange& range) {
    return staging_buffers_[range.staging_buffer].bytes().data() + range.offset;
  }

  Status Do(const ipc::MakeGraphCommand& make) {
    graphs_[make.graph].clear();
    return {};
  }
  Status Do(const ipc::SetGraphNodeCommand& set) {
    graphs_[set.graph][set.node] = set.content;
    return {};
  }
  Status Do(const ipc::LaunchGraphCommand& launch) {
    for (const auto& [number, content] : graphs_[launch.graph]) {
      Status status = std::visit([&](const auto& body) { return Do(body); }, content);
      if (!status.ok()) return status;
    }
    return {};
  }
  Status Do(const ipc::DestroyGraphCommand& destroy) {
    graphs_.erase(destroy.graph);
    return {};
  }

  Status Do(const ipc::CopyToDeviceCommand& copy) {
    std::byte* const device = Device(copy.device_address, copy.device_bytes);
    if (device == nullptr) return NotMapped();
    for (std::uint64_t row = 0; row < copy.height; ++row) {
      std::memcpy(device + row * copy.device_pitch_bytes,
                  Host(copy.staging_buffer) + row * copy.staging_pitch_bytes, copy.width_bytes);
    }
    return Status::Ok();
  }
  Status Do(const ipc::CopyToHostCommand& copy) {
    const std::byte* const device = Device(copy.device_address, copy.device_bytes);
    if (device == nullptr) return NotMapped();
    for (std::uint64_t row = 0; row < copy.height; ++row) {
      std::memcpy(Host(copy.staging_buffer) + row * copy.staging_pitch_bytes,
                  device + row * copy.device_pitch_bytes, copy.width_bytes);
    }
    return Status::Ok();
  }
  Status Do(const ipc::CopyOnDeviceCommand& copy) {
    std::byte* const to = Device(copy.destination, copy.destination_bytes);
    const std::byte* const from = Device(copy.source, copy.source_bytes);
    if (to == nullptr || from == nullptr) return NotMapped();
    for (std::uint64_t row = 0; row < copy.height; ++row) {
      // Handles overlapping copies like the cpu device.
      std::memmove(to + row * copy.destination_pitch_bytes, from + row * copy.source_pitch_bytes,
                   copy.width_bytes);
    }
    return Status::Ok();
  }
  Status Do(const ipc::FillCommand& fill) {
    std::byte* const to = Device(fill.destination, fill.destination_bytes);
    if (to == nullptr) return NotMapped();
    for (std::uint64_t row = 0; row < fill.height; ++row) {
      for (std::uint64_t at = 0; at < fill.width_bytes; at += fill.element_bytes) {
        std::memcpy(to + row * fill.pitch_bytes + at, &fill.value, fill.element_bytes);
      }
    }
    return Status::Ok();
  }
  Status Do(const ipc::WaitForCommand& wait) {
    const Failure& failure = failures_[wait.target.stream];
    if (failure.status.ok() || failure.sequence > wait.target.sequence) return Status::Ok();
    return Status(StatusCode::kCancelled, "a command it waits for failed");
  }
  template <typename Other>
  Status Do(const Other&) {
    return Status::Ok();
  }

  FakeWorker& worker_;
  ipc::UniqueFd socket_;
  SharedSegment commands_, completions_, page_;
  ipc::UniqueFd eventfd_;
  ipc::TagRingReader reader_;
  ipc::TagRingWriter writer_;
  ipc::CompletionDoorbell wake_;
  // Nodes by graph and number.
  std::map<std::uint32_t, std::map<std::uint32_t, decltype(ipc::SetGraphNodeCommand::content)>>
      graphs_;
  ipc::StreamLog session_log_;
  ipc::RecordCopy record_;
  std::array<Failure, ipc::kStreamsMax> failures_;
  std::deque<ipc::Command> queued_;
  std::vector<std::byte> memory_;
  std::vector<SharedSegment> staging_buffers_;
  std::uint64_t staging_bytes_ = 0;
  ipc::UniqueFd image_;
  std::uint64_t image_bytes_ = 0;
  std::uint64_t executed_ = 0;
  bool over_ = false;
};

std::vector<ipc::KernelDescription> FakeWorker::Kernels() {
  ipc::KernelDescription add{.name = "add",
                             .parameter_bytes = 28,
                             .static_shared_bytes = 1024,
                             .threads_per_block_max = 256,
                             .parameters = {{0, 8}, {8, 8}, {16, 8}, {24, 4}},
                             .attributes = {.registers = 24,
                                            .local_bytes = 16,
                                            .constant_bytes = 64,
                                            .dynamic_shared_bytes_max = 48 * 1024 - 1024,
                                            .ptx_version = 75,
                                            .binary_version = 80}};
  // A kernel whose parameters have a hole between them, because of alignment.
  ipc::KernelDescription padded{.name = "padded",
                                .parameter_bytes = 16,
                                .threads_per_block_max = 512,
                                .parameters = {{0, 1}, {8, 8}}};
  ipc::KernelDescription nothing{.name = "nothing", .threads_per_block_max = 512};
  ipc::KernelDescription large{.name = "large",
                               .parameter_bytes = 6000,
                               .threads_per_block_max = 512,
                               .parameters = {{0, 6000}}};
  ipc::KernelDescription missing{
      .name = "missing", .unsupported = "line 12: wgmma.mma_async", .threads_per_block_max = 512};
  return {add, padded, nothing, large, missing};
}

std::vector<ipc::VariableDescription> FakeWorker::Variables() {
  return {{.name = "count", .address = kVariables + 64, .bytes = 4},
          {.name = "table",
           .address = kVariables + 128,
           .bytes = 64,
           .space = ipc::VariableSpace::kConstant}};
}

FakeWorker::FakeWorker(FakeWorkerOptions options)
    : options_(std::move(options)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      why_([](const ipc::UniqueFd& socket) {
        const Status died(StatusCode::kDeviceLost, "worker 1 of device fake:0 died");
        static_cast<void>(ipc::SendMessage(socket.get(), 1, ipc::Ended{.status = died}, Soon()));
      }) {
  path_ = directory_ / "s";
  listening_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  const bool listens =
      ::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(listening_.get(), 16) == 0;
  Check(listens, "test socket can be made");
  server_ = std::thread([this] { Serve(); });
}

FakeWorker::~FakeWorker() {
  stopping_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof one));
  server_.join();
  for (std::thread& session : sessions_) session.join();
  ::unlink(path_.c_str());
}

void FakeWorker::Serve() {
  while (!stopping_) {
    pollfd fds[2] = {{.fd = listening_.get(), .events = POLLIN, .revents = 0},
                     {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    ::poll(fds, 2, -1);
    if ((fds[0].revents & POLLIN) == 0) continue;
    const int fd = ::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::lock_guard lock(mutex_);
    sessions_.emplace_back([this, fd] { Answer(ipc::UniqueFd(fd)); });
  }
}

void FakeWorker::Answer(ipc::UniqueFd socket) {
  const auto frame = ipc::ReceiveFrame(socket.get(), ipc::FirstFrameRules, Soon());
  if (!frame.ok()) return;
  if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kWhy)) {
    WhyAnswer answer;
    {
      const std::lock_guard lock(mutex_);
      answer = why_;
    }
    return answer(std::move(socket));
  }
  if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kListDevices)) {
    static_cast<void>(ipc::SendMessage(socket.get(), frame->request,
                                       ipc::DeviceList{.devices = {FakeDevice()}}, Soon()));
    return;
  }
  const auto hello = ipc::Decode<ipc::Hello>(frame->payload);
  if (!hello.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    last_hello_ = *hello;
  }
  if (!options_.reject_hello.ok()) {
    static_cast<void>(ipc::SendMessage(socket.get(), frame->request,
                                       ipc::Rejected{.status = options_.reject_hello}, Soon()));
    return;
  }
  // The session is on the heap, because its buffers are too large for a sanitizer's stack frames.
  std::make_unique<Session>(*this, std::move(socket))->Run(frame->request);
  ++sessions_ended_;
}

void FakeWorker::FailAt(std::uint32_t stream, std::uint64_t sequence, Status status) {
  const std::lock_guard lock(mutex_);
  failures_.insert_or_assign({stream, sequence}, std::move(status));
}

void FakeWorker::set_why(WhyAnswer answer) {
  const std::lock_guard lock(mutex_);
  why_ = std::move(answer);
}

void FakeWorker::StopListening() { ::unlink(path_.c_str()); }

void FakeWorker::EndSessions(Status status) {
  const std::lock_guard lock(mutex_);
  end_ = std::move(status);
}

std::vector<TakenCommand> FakeWorker::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

std::vector<std::uint32_t> FakeWorker::unloaded_modules() const {
  const std::lock_guard lock(mutex_);
  return unloaded_;
}

std::vector<std::uint64_t> FakeWorker::resizes() const {
  const std::lock_guard lock(mutex_);
  return resizes_;
}

std::vector<std::string> FakeWorker::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

std::optional<ipc::Hello> FakeWorker::last_hello() const {
  const std::lock_guard lock(mutex_);
  return last_hello_;
}

}  // namespace gpushared::testing
