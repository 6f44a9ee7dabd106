// SPDX-License-Identifier: Apache-2.0
// The seeds of wire_fuzz, made by the encoders. A rejected seed is a failure, because it leads a
// fuzzer only to the first check. A target without a seed is one, too, and so are seeds that the
// encoders no longer make, because a peer of the same version would not understand the new
// encoding.
//
// Usage: wire_seeds check DIRECTORY    checks the existing seeds
//        wire_seeds write DIRECTORY    writes them again after a change of the protocol
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/wire/command.h"
#include "ipc/wire/completion.h"
#include "tests/fuzz/wire_targets.h"

namespace gpushared::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Seeds = std::map<std::string, Bytes>;  // By file name.

template <typename T>
void Append(Bytes& bytes, const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}
void Append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <typename T>
Bytes Message(const T& message) {
  Bytes bytes = {std::byte{GetSelector(T::kType)}};
  const Result<Bytes> encoded = ipc::Encode(message);
  Append(bytes, encoded.value());
  return bytes;
}

// "AdminReply" is stored in the file admin_reply.
std::string FileName(std::string_view message) {
  std::string name;
  for (const char c : message) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && !name.empty()) name += '_';
    name += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}
template <typename... Messages>
void Add(Seeds& seeds, const Messages&... messages) {
  (seeds.emplace(FileName(Messages::kName), Message(messages)), ...);
}

template <typename T>
void AppendFrame(Bytes& bytes, const T& message) {
  const Bytes payload = ipc::Encode(message);
  Append(bytes, ipc::FrameHeader{.type = static_cast<std::uint16_t>(T::kType),
                                 .request = 1,
                                 .payload_bytes = static_cast<std::uint32_t>(payload.size())});
  Append(bytes, payload);
}

// The target inserts the tags of a seed; these values request it.
constexpr std::uint32_t kHeaderTag = 2, kContinuationTag = 3;

template <typename Record>
void AppendRecord(Bytes& bytes, Record record, ipc::Op op, std::uint64_t sequence,
                  std::uint16_t continuations = 0) {
  record.header = {.tag = kHeaderTag,
                   .op = static_cast<std::uint8_t>(op),
                   .continuations = continuations,
                   .sequence = sequence};
  Append(bytes, record);
  for (; continuations > 0; --continuations) {
    Append(bytes, kContinuationTag);
    bytes.resize(bytes.size() + ipc::kContinuationDataBytes);
  }
}

ipc::LaunchRecord Launch(std::uint16_t parameter_bytes) {
  return {.grid = {1, 1, 1}, .block = {32, 1, 1}, .parameter_bytes = parameter_bytes};
}

// A node's record and its parameters, split into continuation granules.
template <typename Record>
void AppendNode(Bytes& bytes, Record content, ipc::Op op, std::uint32_t node,
                std::uint64_t sequence, std::uint32_t parameter_bytes = 0) {
  content.header = {.op = static_cast<std::uint8_t>(op)};
  content.header.continuations = static_cast<std::uint16_t>(
      (parameter_bytes + ipc::kContinuationDataBytes - 1) / ipc::kContinuationDataBytes);
  Bytes packed;
  Append(packed, content);
  packed.resize(packed.size() + parameter_bytes);
  ipc::GraphRecord record{
      .graph = 1, .node = node, .content_bytes = static_cast<std::uint32_t>(packed.size())};
  const std::size_t granules =
      (packed.size() + ipc::kContinuationDataBytes - 1) / ipc::kContinuationDataBytes;
  record.header = {.tag = kHeaderTag,
                   .op = static_cast<std::uint8_t>(ipc::Op::kSetGraphNode),
                   .continuations = static_cast<std::uint16_t>(granules),
                   .sequence = sequence};
  Append(bytes, record);
  packed.resize(granules * ipc::kContinuationDataBytes);
  for (std::size_t i = 0; i < granules; ++i) {
    Append(bytes, kContinuationTag);
    const auto at = packed.begin() + static_cast<std::ptrdiff_t>(i * ipc::kContinuationDataBytes);
    bytes.insert(bytes.end(), at, at + ipc::kContinuationDataBytes);
  }
}

// Commands 10 to 15 of stream 0.
void AppendGraph(Bytes& bytes) {
  const ipc::GraphRecord graph{.graph = 1};
  AppendRecord(bytes, graph, ipc::Op::kMakeGraph, 10);
  AppendNode(bytes, Launch(100), ipc::Op::kLaunch, 0, 11, 100);
  const ipc::FillRecord fill{.height = 1,
                             .destination = 1 << 22,
                             .pitch_bytes = 64,
                             .width_bytes = 64,
                             .element_bytes = 4};
  AppendNode(bytes, fill, ipc::Op::kFill, 1, 12);
  const ipc::CopyRecord copy{.device_address = 1 << 20,
                             .device_pitch_bytes = 64,
                             .staging_pitch_bytes = 64,
                             .width_bytes = 64,
                             .height = 1};
  AppendNode(bytes, copy, ipc::Op::kCopyToHost, 2, 13);
  AppendRecord(bytes, graph, ipc::Op::kLaunchGraph, 14);
  AppendRecord(bytes, graph, ipc::Op::kDestroyGraph, 15);
}

Bytes CommandRing() {
  Bytes bytes = {std::byte{kRingSelector}};
  AppendRecord(bytes, Launch(100), ipc::Op::kLaunch, 1, 2);
  const ipc::CopyRecord copy{.device_address = 1 << 20,
                             .device_pitch_bytes = 512,
                             .staging_pitch_bytes = 128,
                             .width_bytes = 100,
                             .height = 4};
  AppendRecord(bytes, copy, ipc::Op::kCopyToDevice, 2);
  AppendRecord(bytes, copy, ipc::Op::kCopyToHost, 3);
  const ipc::CopyOnDeviceRecord on_device{.height = 2,
                                          .destination = 1 << 22,
                                          .destination_pitch_bytes = 64,
                                          .source = 1 << 20,
                                          .source_pitch_bytes = 64,
                                          .width_bytes = 64};
  AppendRecord(bytes, on_device, ipc::Op::kCopyOnDevice, 4);
  const ipc::FillRecord fill{.height = 1,
                             .destination = 1 << 22,
                             .pitch_bytes = 64,
                             .width_bytes = 64,
                             .element_bytes = 4};
  AppendRecord(bytes, fill, ipc::Op::kFill, 5);
  AppendRecord(bytes, ipc::PlainRecord{.stream = 1}, ipc::Op::kCreateStream, 1);
  AppendRecord(bytes, ipc::WaitForRecord{.stream = 1, .wait_sequence = 5}, ipc::Op::kWaitFor, 2);
  AppendRecord(bytes, ipc::PlainRecord{.stream = 1}, ipc::Op::kMark, 3);
  AppendRecord(bytes, ipc::PlainRecord{.stream = 1}, ipc::Op::kDestroyStream, 4);
  const ipc::RequestRecord request{.time_ns = 1'000'000};
  AppendRecord(bytes, request, ipc::Op::kBeginRequest, 6);
  AppendRecord(bytes, ipc::PlainRecord{}, ipc::Op::kEndRequest, 7);
  AppendRecord(bytes, request, ipc::Op::kExpectRequest, 8);
  ipc::LaunchRecord cluster = Launch(0);
  cluster.grid[0] = 4;
  cluster.cluster[0] = 2;
  cluster.cluster[1] = cluster.cluster[2] = 1;
  AppendRecord(bytes, cluster, ipc::Op::kLaunch, 9);
  AppendGraph(bytes);
  const ipc::BufferRecord buffer{.address = 1 << 20, .bytes = 4096};
  AppendRecord(bytes, buffer, ipc::Op::kNameBuffer, 16);
  const ipc::BufferRecord forgotten{.address = 1 << 20};
  AppendRecord(bytes, forgotten, ipc::Op::kForgetBuffer, 17);
  return bytes;
}

Bytes LargeLaunch() {
  Bytes bytes = {std::byte{kRingSelector}};
  AppendRecord(bytes, Launch(ipc::kInlineParameterBytesMax), ipc::Op::kLaunch, 1,
               ipc::kContinuationsMax);
  return bytes;
}

Bytes CompletionRing() {
  Bytes bytes = {std::byte{kRingSelector}};
  ipc::CompletionRecord error;
  error.code = static_cast<std::uint32_t>(StatusCode::kKernelFault);
  error.fault = static_cast<std::uint32_t>(FaultKind::kAssert);
  AppendRecord(bytes, error, static_cast<ipc::Op>(ipc::CompletionKind::kError), 1);
  ipc::CompletionRecord mark;
  mark.started_ns = 1000;
  mark.ended_ns = 2000;
  AppendRecord(bytes, mark, static_cast<ipc::Op>(ipc::CompletionKind::kMark), 2);
  return bytes;
}

ipc::DeviceDescription Device() {
  return {.name = "a device",
          .id = "cpu:0",
          .kind = "cpu",
          .memory_bytes = 1 << 30,
          .multiprocessors = 4,
          .threads_per_block_max = 1024,
          .block_max = {1024, 1024, 64},
          .grid_max = {ipc::kGridXMax, 65535, 65535},
          .shared_bytes_per_block_max = 48 << 10,
          .preempts_within_command = true,
          .spinning_pays = true};
}

void AddFrames(Seeds& seeds, const ipc::Hello& hello) {
  Bytes& first = seeds["frame_hello"] = {std::byte{kFirstFramesSelector}};
  AppendFrame(first, hello);
  Bytes& client = seeds["frames_client"] = {std::byte{kClientFramesSelector}};
  AppendFrame(client, ipc::UnloadModule{1});
  AppendFrame(client, ipc::DescribeError{3});
  Bytes& server = seeds["frame_rejected"] = {std::byte{kServerFramesSelector}};
  AppendFrame(server, ipc::Rejected{Status(StatusCode::kOutOfMemory, "quota is used up")});
}

Seeds AllSeeds() {
  const Status status(StatusCode::kOutOfMemory, "quota is used up");
  const ipc::Hello hello{.weight = 2,
                         .max_share = 250,
                         .latency_target_ns = 1'000'000,
                         .name = "serve",
                         .device = "cpu:0"};
  const ipc::Admin set{.verb = ipc::AdminVerb::kSet,
                       .client = 3,
                       .client_class = SchedulingClass::kLow,
                       .weight = 4};
  const ipc::VariableDescription variable{.name = "counter", .address = 0x7000, .bytes = 4};
  const ipc::KernelDescription kernel{.name = "gemm",
                                      .unsupported = "",
                                      .parameter_bytes = 12,
                                      .static_shared_bytes = 64,
                                      .threads_per_block_max = 1024,
                                      .parameters = {{0, 8}, {8, 4}}};
  Seeds seeds = {{"ring_commands", CommandRing()},
                 {"ring_large_launch", LargeLaunch()},
                 {"ring_completions", CompletionRing()}};
  Add(seeds, hello, set, ipc::Why{3},
      ipc::Welcome{.generation = 1,
                   .session = 5,
                   .spin_ns = 1000,
                   .quota_bytes = 1 << 20,
                   .space_base = 1 << 20,
                   .space_bytes = 1 << 30,
                   .staging_bytes_total_max = 1 << 28,
                   .device = Device()},
      ipc::Rejected{status}, ipc::Ended{status}, ipc::AdminReply{StatusCode::kOk, "{}"},
      ipc::MakeImage{100}, ipc::ImageMade{100}, ipc::LoadModule{1, 100}, ipc::TakePrinted{},
      ipc::Printed{.end = 9, .dropped = 2, .text = "line 1\n"}, ipc::ListDevices{},
      ipc::DeviceList{{Device(), Device()}}, ipc::ModuleLoaded{1, {kernel, kernel}, {variable}},
      ipc::UnloadModule{1}, ipc::Done{}, ipc::ResizeMemory{2 << 20}, ipc::MemoryResized{2 << 20},
      ipc::ChangeChunk{.chunk = 1, .bytes = 2 << 20}, ipc::SetKernelMemory{.heap_bytes = 64 << 20},
      ipc::AddStagingBuffer{ipc::kArenaBytesDefault},
      ipc::StagingBufferAdded{1, ipc::kArenaBytesDefault}, ipc::DescribeError{3},
      ipc::ErrorText{.stream = 1, .sequence = 2, .status = status}, ipc::Ready{1, Device()},
      ipc::Attach{.session = 1,
                  .peer = {10, 1000, 1000},
                  .request = 1,
                  .quota_bytes = 1 << 20,
                  .guaranteed_bytes = 1 << 20,
                  .weight_max = 100,
                  .hello = hello},
      ipc::SessionStarted{1}, ipc::SessionEnded{1, status}, ipc::AdminRequest{set},
      ipc::ChannelReply{StatusCode::kOk, "{}"}, ipc::Drain{}, ipc::Resume{},
      ipc::TerminateSession{1, "why"},
      ipc::SetSession{.session = 1, .client_class = SchedulingClass::kLow, .weight = 3},
      ipc::TakeOver{}, ipc::Registry{.generation = 1, .last_session = 9, .sessions = 1},
      ipc::RegistrySession{.session = 1, .name = "serve"}, ipc::RegistryEnd{1, 10, 1000, status},
      ipc::Keep{1, "uid 0 pid 7", "class = \"low\""},
      ipc::Kept{{1, "uid 0 pid 7", "class = \"low\""}}, ipc::Forget{1},
      ipc::Watch{1000, 10, 1, true}, ipc::TraceOpened{7, 1});
  AddFrames(seeds, hello);
  return seeds;
}

// Files with other names are findings of a fuzzer: they are kept, and need not be accepted.
int Write(const std::filesystem::path& directory) {
  for (const auto& [name, bytes] : AllSeeds()) {
    std::ofstream file(directory / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      std::printf("%s cannot be written\n", (directory / name).c_str());
      return 1;
    }
  }
  return 0;
}

Bytes Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

int Check(const std::filesystem::path& directory) {
  int wrong = 0;
  const auto complain = [&wrong](const std::string& what) {
    std::printf("%s\n", what.c_str());
    ++wrong;
  };
  std::set<std::uint8_t> seeded, known;
  for (const auto& [name, made] : AllSeeds()) {
    const Bytes seed = Read(directory / name);
    const WireTarget* target = GetTarget(seed);
    if (target == nullptr) {
      complain("seed " + name + " is missing, or of no target");
    } else if (target->selector != std::to_integer<std::uint8_t>(made[0])) {
      complain("seed " + name + " is for " + target->name);
    } else if (!target->accepts(Input(seed).subspan(1))) {
      complain("seed " + name + " is rejected: write the seeds anew");
    } else if (seed != made) {
      complain("seed " + name +
               " is not what the encoders write: other bytes are another protocol version");
    } else {
      seeded.insert(target->selector);
    }
  }
  for (const WireTarget& target : WireTargets()) {
    if (!known.insert(target.selector).second)
      complain(std::string(target.name) + " has the selector of another target");
    if (!seeded.contains(target.selector)) complain(std::string(target.name) + " has no seed");
  }
  std::printf("%zu targets, %d wrong\n", WireTargets().size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  const std::string_view verb = argc == 3 ? argv[1] : "";
  if (verb == "check") return gpushared::testing::Check(argv[2]);
  if (verb == "write") return gpushared::testing::Write(argv[2]);
  std::fprintf(stderr, "usage: wire_seeds check|write DIRECTORY\n");
  return 2;
}
