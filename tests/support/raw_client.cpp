// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_client.h"

#include <cstring>
#include <string>
#include <utility>

#include "ipc/doorbell.h"
#include "ipc/wire/validate.h"

namespace gpushared::testing {

namespace {

constexpr std::chrono::milliseconds kSlice(50);
constexpr std::chrono::seconds kPatience(30);

Result<ipc::SharedSegment> MapSegment(ipc::UniqueFd fd, std::size_t bytes,
                                      ipc::SharedSegment::Access access) {
  return ipc::SharedSegment::Map(std::move(fd), {.bytes = bytes, .access = access});
}

}  // namespace

Result<ipc::Frame> RawClient::NextFrame() {
  return ipc::ReceiveFrame(socket_.get(), ipc::ServerFrameRules, Soon());
}

Status RawClient::AwaitEnd() {
  for (;;) {
    Result<ipc::Frame> frame = NextFrame();
    if (!frame.ok()) return frame.status();
    // Answers to requests that were open may come before.
    if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kEnded)) {
      return ipc::DecodeReply<ipc::Welcome>(*frame).status();
    }
    if (frame->type == static_cast<std::uint16_t>(ipc::MessageType::kRefused)) {
      return ipc::DecodeReply<ipc::Welcome>(*frame).status();
    }
  }
}

Status RawClient::AwaitWelcome() {
  Result<ipc::Frame> frame = NextFrame();
  if (!frame.ok()) return frame.status();
  Result<ipc::Welcome> welcome = ipc::DecodeReply<ipc::Welcome>(*frame);
  if (!welcome.ok()) return welcome.status();
  welcome_ = *welcome;
  using Access = ipc::SharedSegment::Access;
  auto commands =
      MapSegment(std::move(frame->fds[0]), ipc::kCommandSegmentBytes, Access::kReadWrite);
  auto completions =
      MapSegment(std::move(frame->fds[1]), ipc::kCompletionSegmentBytes, Access::kReadOnly);
  auto page = MapSegment(std::move(frame->fds[2]), ipc::kWorkerPageBytes, Access::kReadOnly);
  for (const auto* segment : {&commands, &completions, &page}) {
    if (!segment->ok()) return segment->status();
  }
  commands_ = *std::move(commands);
  completions_ = *std::move(completions);
  page_ = *std::move(page);
  commands_.CloseFd();
  completions_.CloseFd();
  page_.CloseFd();
  doorbell_ = std::move(frame->fds[3]);
  auto& in = commands_.As<ipc::CommandSegment>();
  auto& out = completions_.As<ipc::CompletionSegment>();
  ring_.emplace(in.granules, out.granules_taken);
  completion_ring_.emplace(out.granules, in.completions_taken);
  return Status::Ok();
}

Result<ipc::ModuleLoaded> RawClient::LoadModule(std::uint32_t number, std::string_view image) {
  Result<ipc::UniqueFd> memory =
      ipc::MakeImmutableMemory("module", std::as_bytes(std::span(image.data(), image.size())));
  if (!memory.ok()) return memory.status();
  const int fd = memory->get();
  return Ask<ipc::ModuleLoaded>(ipc::LoadModule{.module = number, .bytes = image.size()},
                                std::span(&fd, 1));
}

Result<std::uint64_t> RawClient::Resize(std::uint64_t bytes) {
  Result<ipc::MemoryResized> answer = Ask<ipc::MemoryResized>(ipc::ResizeMemory{.bytes = bytes});
  if (!answer.ok()) return answer.status();
  return answer->mapped_bytes;
}

Result<std::uint32_t> RawClient::AddArena(std::uint64_t bytes) {
  std::vector<ipc::UniqueFd> fds;
  Result<ipc::ArenaAdded> answer = Ask<ipc::ArenaAdded>(ipc::AddArena{.bytes = bytes}, {}, &fds);
  if (!answer.ok()) return answer.status();
  auto arena =
      MapSegment(std::move(fds.front()), answer->bytes, ipc::SharedSegment::Access::kReadWrite);
  if (!arena.ok()) return arena.status();
  arena->CloseFd();
  arenas_[answer->arena] = *std::move(arena);
  return answer->arena;
}

// ---- commands

void RawClient::Ring() { ipc::ClientDoorbell(page_.As<ipc::WorkerPage>(), doorbell_.get()).Ring(); }

Sequence RawClient::Launch(std::uint32_t stream, std::uint32_t module, std::uint32_t kernel,
                           Blocks blocks, std::span<const std::byte> parameters) {
  ipc::LaunchRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunch);
  record.stream = stream;
  record.module = module;
  record.kernel = kernel;
  record.grid[0] = blocks.x;
  record.grid[1] = record.grid[2] = 1;
  record.block[0] = record.block[1] = record.block[2] = 1;
  record.parameter_bytes = static_cast<std::uint16_t>(parameters.size());
  return PublishAndRing(Publish(record, parameters));
}

Sequence RawClient::CopyToDevice(std::uint32_t stream, std::uint32_t arena, std::uint32_t offset,
                                 std::uint64_t address, std::uint32_t bytes) {
  ipc::CopyRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kCopyToDevice);
  record.stream = stream;
  record.arena = arena;
  record.arena_offset = offset;
  record.device_address = address;
  record.width_bytes = record.arena_pitch_bytes = bytes;
  record.device_pitch_bytes = bytes;
  record.height = 1;
  return PublishAndRing(Publish(record));
}

Sequence RawClient::CopyToHost(std::uint32_t stream, std::uint32_t arena, std::uint32_t offset,
                               std::uint64_t address, std::uint32_t bytes) {
  ipc::CopyRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kCopyToHost);
  record.stream = stream;
  record.arena = arena;
  record.arena_offset = offset;
  record.device_address = address;
  record.width_bytes = record.arena_pitch_bytes = bytes;
  record.device_pitch_bytes = bytes;
  record.height = 1;
  return PublishAndRing(Publish(record));
}

Sequence RawClient::Fill(std::uint32_t stream, std::uint64_t address, std::uint64_t bytes,
                         std::uint32_t value) {
  ipc::FillRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kFill);
  record.stream = stream;
  record.destination = address;
  record.width_bytes = record.pitch_bytes = bytes;
  record.height = 1;
  record.value = value;
  record.element_bytes = 1;
  return PublishAndRing(Publish(record));
}

Sequence RawClient::WaitFor(std::uint32_t stream, std::uint32_t wait_stream,
                            Sequence wait_sequence) {
  ipc::WaitForRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kWaitFor);
  record.stream = stream;
  record.wait_stream = wait_stream;
  record.wait_sequence = wait_sequence;
  return PublishAndRing(Publish(record));
}

Sequence RawClient::Plain(ipc::Op op, std::uint32_t stream) {
  ipc::PlainRecord record;
  record.header.op = static_cast<std::uint8_t>(op);
  record.stream = stream;
  return PublishAndRing(Publish(record));
}

// ---- what came of them

bool RawClient::AwaitFinished(std::uint32_t stream, Sequence sequence) {
  ipc::CompletionWaiter waiter(completions_.As<ipc::CompletionSegment>().event,
                               commands_.As<ipc::CommandSegment>().waiting);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    const auto outcome = waiter.Wait([&] { return finished(stream) >= sequence; },
                                     std::chrono::nanoseconds(0), kSlice);
    if (outcome == ipc::WaitOutcome::kDone) return true;
  }
  return false;
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
  ipc::CompletionWaiter waiter(completions_.As<ipc::CompletionSegment>().event,
                               commands_.As<ipc::CommandSegment>().waiting);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    (void)waiter.Wait([&] { return completion_ring_->HasRecord(); }, std::chrono::nanoseconds(0),
                      kSlice);
    if (auto notice = TakeCompletion()) return notice;
  }
  return {};
}

}  // namespace gpushared::testing
