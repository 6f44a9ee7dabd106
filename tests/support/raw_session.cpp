// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_session.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace gpushared::testing {

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Status RawSession::Connect(const std::string& path) {
  Result<ipc::UniqueFd> socket = ipc::ConnectUnix(path, Soon());
  if (!socket) return socket.status();
  socket_ = std::move(socket).value();
  at_("connected");
  return {};
}

Status RawSession::Handshake(const ipc::Hello& hello) {
  at_("hello half sent");
  if (Status sent = Send(hello); !sent.ok()) return sent;
  at_("hello sent");
  std::vector<ipc::UniqueFd> fds;
  Result<ipc::Welcome> welcome = Receive<ipc::Welcome>(&fds);
  if (!welcome) return welcome.status();
  welcome_ = std::move(welcome).value();
  at_("welcomed");
  using Access = ipc::SharedSegment::Access;
  const auto map = [&](std::size_t index, std::size_t bytes, Access access,
                       ipc::SharedSegment& segment) {
    Result<ipc::SharedSegment> mapped =
        ipc::SharedSegment::Map(std::move(fds.at(index)), {.bytes = bytes, .access = access});
    if (mapped) segment = std::move(mapped).value();
    return mapped.status();
  };
  if (Status s = map(0, ipc::kCommandSegmentBytes, Access::kReadWrite, commands_); !s.ok())
    return s;
  if (Status s = map(1, ipc::kCompletionSegmentBytes, Access::kReadOnly, completions_); !s.ok())
    return s;
  if (Status s = map(2, ipc::kWorkerPageBytes, Access::kReadOnly, page_); !s.ok()) return s;
  doorbell_ = std::move(fds.at(3));
  ring_.emplace(std::span(commands().granules),
                completions_.As<ipc::CompletionSegment>().granules_taken);
  at_("segments mapped");
  return {};
}

Status RawSession::LoadModule(std::uint32_t module, std::span<const std::byte> image) {
  const Result<ipc::UniqueFd> memory = ipc::MakeImmutableMemory("module", image);
  if (!memory) return memory.status();
  at_("module header half sent");
  const int fd = memory->get();
  if (Status sent = Send(ipc::LoadModule{.module = module, .bytes = image.size()}, {&fd, 1});
      !sent.ok())
    return sent;
  at_("module sent");
  Result<ipc::ModuleLoaded> loaded = Receive<ipc::ModuleLoaded>();
  if (!loaded) return loaded.status();
  kernels_ = std::move(loaded->kernels);
  module_ = module;
  at_("module loaded");
  return {};
}

Status RawSession::ResizeMemory(std::uint64_t bytes) {
  if (Status sent = Send(ipc::ResizeMemory{bytes}); !sent.ok()) return sent;
  at_("memory asked for");
  Status resized = Receive<ipc::MemoryResized>().status();
  if (resized.ok()) at_("memory mapped");
  return resized;
}

Status RawSession::AddArena(std::uint64_t bytes) {
  if (Status sent = Send(ipc::AddArena{bytes}); !sent.ok()) return sent;
  at_("arena asked for");
  std::vector<ipc::UniqueFd> fds;
  const Result<ipc::ArenaAdded> added = Receive<ipc::ArenaAdded>(&fds);
  if (!added) return added.status();
  Result<ipc::SharedSegment> mapped = ipc::SharedSegment::Map(
      std::move(fds.at(0)), {.bytes = bytes, .access = ipc::SharedSegment::Access::kReadWrite});
  if (!mapped) return mapped.status();
  arena_ = std::move(mapped).value();
  arena_id_ = added->arena;
  at_("arena mapped");
  return {};
}

Result<ipc::Frame> RawSession::ReceiveFrame(std::chrono::milliseconds limit) {
  return ipc::ReceiveFrame(socket(), ipc::ServerFrameRules,
                           std::chrono::steady_clock::now() + limit);
}

namespace {

ipc::RecordHeader Header(ipc::Op op) {
  ipc::RecordHeader header;
  header.op = static_cast<std::uint8_t>(op);
  return header;
}

}  // namespace

ipc::LaunchRecord RawSession::Launch(std::string_view kernel, std::uint16_t parameter_bytes,
                                     std::vector<std::byte>& tail) const {
  ipc::LaunchRecord record;
  record.header = Header(ipc::Op::kLaunch);
  record.module = module_;
  for (std::uint32_t i = 0; i < kernels_.size(); ++i) {
    if (kernels_[i].name == kernel) record.kernel = i;
  }
  std::fill(std::begin(record.grid), std::end(record.grid), 1u);
  std::fill(std::begin(record.block), std::end(record.block), std::uint16_t{1});
  record.parameter_bytes = parameter_bytes;
  tail.assign(parameter_bytes, std::byte{0});
  std::memcpy(tail.data(), &welcome_.space_base, sizeof welcome_.space_base);
  return record;
}

ipc::CopyRecord RawSession::Copy(ipc::Op op, std::uint32_t bytes) const {
  ipc::CopyRecord record;
  record.header = Header(op);
  record.arena = arena_id_;
  record.device_address = welcome_.space_base;
  record.device_pitch_bytes = bytes;
  record.arena_pitch_bytes = record.width_bytes = bytes;
  record.height = 1;
  return record;
}

ipc::CopyOnDeviceRecord RawSession::CopyOnDevice(std::uint64_t bytes) const {
  ipc::CopyOnDeviceRecord record;
  record.header = Header(ipc::Op::kCopyOnDevice);
  record.height = 1;
  record.destination = welcome_.space_base;
  record.source = welcome_.space_base + bytes;
  record.destination_pitch_bytes = record.source_pitch_bytes = record.width_bytes = bytes;
  return record;
}

ipc::FillRecord RawSession::Fill(std::uint64_t bytes) const {
  ipc::FillRecord record;
  record.header = Header(ipc::Op::kFill);
  record.height = 1;
  record.destination = welcome_.space_base;
  record.pitch_bytes = record.width_bytes = bytes;
  record.element_bytes = 1;
  return record;
}

ipc::WaitForRecord RawSession::WaitFor(std::uint64_t sequence) const {
  ipc::WaitForRecord record;
  record.header = Header(ipc::Op::kWaitFor);
  record.wait_sequence = sequence;
  return record;
}

ipc::PlainRecord RawSession::Plain(ipc::Op op, std::uint32_t stream) const {
  ipc::PlainRecord record;
  record.header = Header(op);
  record.stream = stream;
  return record;
}

bool RawSession::WaitUntil(std::uint64_t sequence, std::chrono::milliseconds limit) const {
  ipc::CompletionWaiter waiter(completions().event, commands().waiting);
  return waiter.Wait(
             [&] { return completions().timeline[0].load(std::memory_order_acquire) >= sequence; },
             std::chrono::nanoseconds(0), limit) == ipc::WaitOutcome::kDone;
}

}  // namespace gpushared::testing
