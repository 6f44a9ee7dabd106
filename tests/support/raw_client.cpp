// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_client.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "ipc/doorbell.h"
#include "ipc/wire/validate.h"

namespace gpushared::testing {

// ---- records

namespace {

template <typename Record>
Record GetRecord(ipc::Op op, std::uint32_t stream) {
  Record record;
  record.header.op = static_cast<std::uint8_t>(op);
  record.stream = stream;
  return record;
}

}  // namespace

ipc::LaunchRecord GetLaunch(std::uint32_t stream, std::uint32_t module, std::uint32_t kernel,
                            Blocks blocks, std::size_t parameter_bytes) {
  auto record = GetRecord<ipc::LaunchRecord>(ipc::Op::kLaunch, stream);
  record.module = module;
  record.kernel = kernel;
  record.grid[0] = blocks.x;
  record.grid[1] = record.grid[2] = 1;
  record.block[0] = record.block[1] = record.block[2] = 1;
  record.parameter_bytes = static_cast<std::uint16_t>(parameter_bytes);
  return record;
}

ipc::CopyRecord GetCopy(ipc::Op op, const CopyOptions& options) {
  auto record = GetRecord<ipc::CopyRecord>(op, options.stream);
  record.staging_buffer = options.staging_buffer;
  record.staging_offset = options.offset;
  record.device_address = options.address;
  record.width_bytes = record.staging_pitch_bytes = options.bytes;
  record.device_pitch_bytes = options.bytes;
  record.height = 1;
  return record;
}

ipc::FillRecord GetFill(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes,
                        std::uint32_t value) {
  auto record = GetRecord<ipc::FillRecord>(ipc::Op::kFill, stream);
  record.destination = address;
  record.width_bytes = record.pitch_bytes = bytes;
  record.height = 1;
  record.value = value;
  record.element_bytes = 1;
  return record;
}

ipc::WaitForRecord WaitForOf(std::uint32_t stream, std::uint32_t wait_stream,
                             Sequence wait_sequence) {
  auto record = GetRecord<ipc::WaitForRecord>(ipc::Op::kWaitFor, stream);
  record.wait_stream = wait_stream;
  record.wait_sequence = wait_sequence;
  return record;
}

ipc::GraphRecord GetGraph(ipc::Op op, std::uint32_t stream, std::uint32_t graph) {
  auto record = GetRecord<ipc::GraphRecord>(op, stream);
  record.graph = graph;
  return record;
}

ipc::BufferRecord GetBuffer(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes) {
  auto record = GetRecord<ipc::BufferRecord>(
      bytes == 0 ? ipc::Op::kForgetBuffer : ipc::Op::kNameBuffer, stream);
  record.address = address;
  record.bytes = bytes;
  return record;
}

ipc::RequestRecord GetRequest(ipc::Op op, std::uint32_t stream, std::uint64_t time_ns) {
  auto record = GetRecord<ipc::RequestRecord>(op, stream);
  record.time_ns = time_ns;
  return record;
}

ipc::PlainRecord GetPlain(ipc::Op op, std::uint32_t stream) {
  return GetRecord<ipc::PlainRecord>(op, stream);
}

std::uint32_t KernelNumber(const ipc::ModuleLoaded& module, std::string_view name) {
  const auto found = std::ranges::find(module.kernels, name, &ipc::KernelDescription::name);
  return found == module.kernels.end() ? ~std::uint32_t{0}
                                       : static_cast<std::uint32_t>(found - module.kernels.begin());
}

std::vector<std::byte> ParametersAt(std::uint64_t address, std::size_t bytes) {
  std::vector<std::byte> parameters(std::max(bytes, sizeof address));
  std::memcpy(parameters.data(), &address, sizeof address);
  return parameters;
}

// ---- the control socket

Result<RawClient> RawClient::Connect(const std::string& path) {
  Result<ipc::UniqueFd> socket = ipc::ConnectUnix(path, Soon());
  if (!socket.ok()) return socket.status();
  return RawClient(*std::move(socket));
}

Status RawClient::Join(const ipc::Hello& hello) {
  if (Status sent = Send(hello); !sent.ok()) return sent;
  return AwaitWelcome();
}

Result<ipc::Frame> RawClient::NextFrame(std::chrono::milliseconds limit) {
  return ipc::ReceiveFrame(socket(), ipc::ServerFrameRules,
                           std::chrono::steady_clock::now() + limit);
}

Status RawClient::AwaitEnd() {
  for (;;) {
    Result<ipc::Frame> frame = NextFrame();
    if (!frame.ok()) return frame.status();
    // Skips answers to earlier requests, which may arrive before the message.
    if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kEnded)) {
      return ipc::DecodeReply<ipc::Welcome>(*frame).status();
    }
    if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kRejected)) {
      return ipc::DecodeReply<ipc::Welcome>(*frame).status();
    }
  }
}

Status RawClient::AwaitWelcome() {
  std::vector<ipc::UniqueFd> fds;
  Result<ipc::Welcome> welcome = Receive<ipc::Welcome>(&fds);
  if (!welcome.ok()) return welcome.status();
  welcome_ = *std::move(welcome);
  using Access = ipc::SharedSegment::Access;
  struct Part {
    ipc::SharedSegment& segment;
    std::size_t bytes;
    Access access;
  } const parts[] = {{commands_, ipc::kCommandSegmentBytes, Access::kReadWrite},
                     {completions_, ipc::kCompletionSegmentBytes, Access::kReadOnly},
                     {page_, ipc::kWorkerPageBytes, Access::kReadOnly}};
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    auto mapped = ipc::SharedSegment::Map(std::move(fds.at(i)),
                                          {.bytes = parts[i].bytes, .access = parts[i].access});
    if (!mapped.ok()) return mapped.status();
    parts[i].segment = *std::move(mapped);
  }
  doorbell_ = std::move(fds.at(3));
  auto& in = commands_.As<ipc::CommandSegment>();
  auto& out = completions_.As<ipc::CompletionSegment>();
  ring_.emplace(in.granules, out.granules_taken);
  completion_ring_.emplace(out.granules, in.completions_taken);
  return Status::Ok();
}

Result<ipc::UniqueFd> RawClient::MakeImage(std::string_view image) {
  std::vector<ipc::UniqueFd> fds;
  const Result<ipc::ImageMade> made =
      Ask<ipc::ImageMade>(ipc::MakeImage{.bytes = image.size()}, {}, &fds);
  if (!made.ok()) return made.status();
  const Status written =
      ipc::WriteMemory(fds.front().get(), std::as_bytes(std::span(image.data(), image.size())));
  if (!written.ok()) return written;
  return std::move(fds.front());
}

Result<ipc::ModuleLoaded> RawClient::LoadModule(std::uint32_t number, std::string_view image) {
  const Result<ipc::UniqueFd> memory = MakeImage(image);
  if (!memory.ok()) return memory.status();
  return Ask<ipc::ModuleLoaded>(ipc::LoadModule{.module = number, .bytes = image.size()});
}

Result<std::uint64_t> RawClient::Resize(std::uint64_t bytes) {
  Result<ipc::MemoryResized> answer = Ask<ipc::MemoryResized>(ipc::ResizeMemory{.bytes = bytes});
  if (!answer.ok()) return answer.status();
  return answer->mapped_bytes;
}

Result<std::uint32_t> RawClient::AddStagingBuffer(std::uint64_t bytes) {
  std::vector<ipc::UniqueFd> fds;
  Result<ipc::StagingBufferAdded> answer =
      Ask<ipc::StagingBufferAdded>(ipc::AddStagingBuffer{.bytes = bytes}, {}, &fds);
  if (!answer.ok()) return answer.status();
  auto staging_buffer = ipc::SharedSegment::Map(
      std::move(fds.front()),
      {.bytes = answer->bytes, .access = ipc::SharedSegment::Access::kReadWrite});
  if (!staging_buffer.ok()) return staging_buffer.status();
  staging_buffers_[answer->staging_buffer] = *std::move(staging_buffer);
  return answer->staging_buffer;
}

// ---- commands

void RawClient::Ring() { ipc::ClientDoorbell(page_.As<ipc::WorkerPage>(), doorbell_.get()).Ring(); }

Sequence RawClient::Launch(std::uint32_t stream, std::uint32_t module, std::uint32_t kernel,
                           Blocks blocks, std::span<const std::byte> parameters) {
  return PublishAndRing(GetLaunch(stream, module, kernel, blocks, parameters.size()), parameters);
}

Sequence RawClient::CopyToDevice(std::uint32_t stream, std::uint32_t staging_buffer,
                                 std::uint32_t offset, std::uint64_t address, std::uint32_t bytes) {
  return PublishAndRing(
      GetCopy(ipc::Op::kCopyToDevice, {stream, staging_buffer, offset, address, bytes}));
}

Sequence RawClient::CopyToHost(std::uint32_t stream, std::uint32_t staging_buffer,
                               std::uint32_t offset, std::uint64_t address, std::uint32_t bytes) {
  return PublishAndRing(
      GetCopy(ipc::Op::kCopyToHost, {stream, staging_buffer, offset, address, bytes}));
}

Sequence RawClient::Fill(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes,
                         std::uint32_t value) {
  return PublishAndRing(GetFill(stream, address, bytes, value));
}

Sequence RawClient::WaitFor(std::uint32_t stream, std::uint32_t wait_stream,
                            Sequence wait_sequence) {
  return PublishAndRing(WaitForOf(stream, wait_stream, wait_sequence));
}

// ---- results

template <typename Holds>
bool RawClient::Await(Holds holds, std::chrono::milliseconds limit) const {
  ipc::CompletionWaiter waiter(completions_.As<ipc::CompletionSegment>().event,
                               commands_.As<ipc::CommandSegment>().waiting);
  return waiter.Wait(holds, std::chrono::nanoseconds(0), limit) == ipc::WaitOutcome::kDone;
}

bool RawClient::AwaitFinished(std::uint32_t stream, Sequence sequence,
                              std::chrono::milliseconds limit) const {
  return Await([&] { return finished(stream) >= sequence; }, limit);
}

std::optional<ipc::CompletionNotice> RawClient::TakeCompletion() {
  ipc::RecordCopy record;
  ipc::CompletionNotice notice;
  if (completion_ring_->TryRead(record) != ipc::ReadResult::kRecord) return {};
  if (!ipc::ValidateCompletion(record, notice).ok()) return {};
  completion_ring_->PublishTaken();
  return notice;
}

std::optional<ipc::CompletionNotice> RawClient::NextCompletion() {
  std::optional<ipc::CompletionNotice> notice;
  (void)Await(
      [&] {
        if (!notice) notice = TakeCompletion();
        return notice.has_value();
      },
      kPatience);
  return notice;
}

}  // namespace gpushared::testing
