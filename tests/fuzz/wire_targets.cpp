// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/wire_targets.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <variant>
#include <vector>

#include "gpushared/check.h"

#include "ipc/tag_ring.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/validate.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 63;

void CheckRange(const ipc::StagingRange& range) {
  Check(range.staging_buffer < ipc::kStagingBuffersMax, "staging buffer number is bounded");
  Check(ipc::RangeInside(range.offset, range.bytes, ipc::kStagingBufferBytesMax),
        "staging buffer range is bounded");
}

void CheckExtent(std::uint64_t start, std::uint64_t bytes, std::uint64_t width,
                 std::uint64_t height) {
  Check(width >= 1 && height >= 1 && bytes >= width, "a rectangle is not empty");
  Check(ipc::RangeInside(start, bytes, kAddressEnd), "device range does not overflow");
}

// Checks the guarantees of command.h.
struct CheckBody {
  void operator()(const ipc::LaunchCommand& launch) const {
    Check(launch.module < ipc::kModulesMax && launch.kernel < ipc::kKernelsPerModuleMax, "launch");
    std::uint64_t threads = 1;
    for (std::size_t i = 0; i < 3; ++i) {
      Check(launch.grid[i] >= 1 && launch.block[i] >= 1, "shape is not empty");
      threads *= launch.block[i];
    }
    Check(threads <= ipc::kThreadsPerBlockMax, "threads are bounded");
    if (launch.parameters_in_staging_buffer) {
      CheckRange(launch.staging_parameters);
      Check(launch.inline_parameters.empty(), "parameters are in one place");
    } else {
      Check(launch.inline_parameters.size() == launch.parameter_bytes, "parameters are all there");
      // Reads the bytes, so that asan reports a span that leaves the record.
      unsigned sum = 0;
      for (const std::byte byte : launch.inline_parameters) sum += std::to_integer<unsigned>(byte);
      asm volatile("" ::"r"(sum));
    }
  }
  void operator()(const ipc::CopyCommand& copy) const {
    CheckRange(copy.staging_buffer);
    CheckExtent(copy.device_address, copy.device_bytes, copy.width_bytes, copy.height);
    Check(copy.device_pitch_bytes >= copy.width_bytes, "rows do not overlap");
  }
  void operator()(const ipc::CopyOnDeviceCommand& copy) const {
    CheckExtent(copy.destination, copy.destination_bytes, copy.width_bytes, copy.height);
    CheckExtent(copy.source, copy.source_bytes, copy.width_bytes, copy.height);
  }
  void operator()(const ipc::FillCommand& fill) const {
    CheckExtent(fill.destination, fill.destination_bytes, fill.width_bytes, fill.height);
    Check(fill.element_bytes == 1 || fill.element_bytes == 2 || fill.element_bytes == 4, "element");
    Check((fill.destination | fill.pitch_bytes | fill.width_bytes) % fill.element_bytes == 0,
          "fill is aligned");
  }
  void operator()(const ipc::WaitForCommand& wait) const {
    Check(wait.target.stream < ipc::kStreamsMax && wait.target.sequence >= 1, "wait");
  }
  void operator()(const ipc::MarkCommand&) const {}
  void operator()(const ipc::CreateStreamCommand&) const {}
  void operator()(const ipc::DestroyStreamCommand&) const {}
  void operator()(const ipc::BeginRequestCommand& begin) const {
    Check(begin.age_ns <= ipc::kRequestTimeNsMax, "a request is no older than it may be");
  }
  void operator()(const ipc::EndRequestCommand&) const {}
  void operator()(const ipc::TurnCommand&) const {}
  void operator()(const ipc::MakeGraphCommand& make) const { CheckGraph(make.graph); }
  void operator()(const ipc::LaunchGraphCommand& launch) const { CheckGraph(launch.graph); }
  void operator()(const ipc::DestroyGraphCommand& destroy) const { CheckGraph(destroy.graph); }
  void operator()(const ipc::SetGraphNodeCommand& set) const {
    CheckGraph(set.graph);
    Check(set.node < ipc::kGraphNodesMax, "node number is bounded");
    std::visit(*this, set.content);
  }
  void operator()(const ipc::NameBufferCommand& name) const {
    Check(name.bytes >= 1, "a buffer is not empty");
    Check(ipc::RangeInside(name.address, name.bytes, kAddressEnd), "a buffer does not overflow");
  }
  void operator()(const ipc::ForgetBufferCommand& forget) const {
    Check(forget.address <= kAddressEnd, "an address is bounded");
  }
  static void CheckGraph(std::uint32_t graph) {
    Check(graph < ipc::kGraphsMax, "graph number is bounded");
  }
  void operator()(const ipc::ExpectRequestCommand& expect) const {
    Check(expect.in_ns <= ipc::kRequestTimeNsMax, "a request is expected no later than it may be");
  }
};

// Treats the input as ring memory and reads it like a worker. Tags are corrected where the input's
// own bits request it, because a fuzzer would almost never guess one. Only rings that consist
// entirely of commands or of completions are accepted.
bool FuzzRing(Input input) {
  constexpr std::size_t kGranules = 128;
  const auto granules = std::make_unique<std::array<ipc::Granule, kGranules>>();
  std::atomic<std::uint64_t> taken{0};
  const std::size_t given = std::min(input.size() / ipc::kGranuleBytes, kGranules);
  for (std::size_t i = 0; i < given; ++i) {
    const Input bytes = input.subspan(i * ipc::kGranuleBytes, ipc::kGranuleBytes);
    std::uint32_t tag;
    std::memcpy(&tag, bytes.data(), sizeof tag);
    std::memcpy((*granules)[i].data, bytes.data() + sizeof tag, ipc::kContinuationDataBytes);
    const bool repaired = (tag & 2) != 0;
    (*granules)[i].tag = repaired ? ipc::RingTag(i, (tag & 1) != 0) : tag;
  }
  ipc::TagRingReader reader(*granules, taken);
  const auto copy = std::make_unique<ipc::RecordCopy>();
  ipc::StreamLog session_log;
  ipc::Command command;
  ipc::CompletionNotice notice;
  std::size_t granules_read = 0, records = 0, commands = 0, completions = 0;
  while (reader.TryRead(*copy) == ipc::ReadResult::kRecord) {
    Check(copy->tail_bytes() <= copy->tail.size(), "the copy holds the record");
    granules_read += 1 + copy->tail_bytes() / ipc::kContinuationDataBytes;
    ++records;
    if (const ipc::Violation found = ipc::ValidateCompletion(*copy, notice); !found.ok()) {
      Check(!ipc::DescribeViolation(found, *copy).ok(), "a violation is an error");
    } else {
      ++completions;
    }
    if (const ipc::Violation found = ipc::ValidateCommand(*copy, command); !found.ok()) {
      Check(!ipc::DescribeViolation(found, *copy).message().empty(), "a violation has a sentence");
      continue;
    }
    Check(command.id.stream < ipc::kStreamsMax && command.id.sequence >= 1, "identity");
    std::visit(CheckBody(), command.body);
    const std::uint64_t before = session_log.last(command.id.stream);
    const bool accepted = session_log.Accept(command).ok();
    Check(session_log.last(command.id.stream) == before + (accepted ? 1 : 0),
          "sequences count by one");
    commands += accepted ? 1 : 0;
  }
  return records > 0 && granules_read == given && (commands == records || completions == records);
}

template <typename T>
bool FuzzMessage(Input input) {
  const Result<T> value = ipc::Decode<T>(input);
  if (!value.ok()) {
    Check(!value.status().message().empty(), "a rejection has a sentence");
    return false;
  }
  // An accepted value has exactly one encoding, the received one.
  const Result<std::vector<std::byte>> again = ipc::Encode(*value);
  Check(again.ok() && std::equal(again->begin(), again->end(), input.begin(), input.end()),
        "decoding loses nothing");
  return true;
}

// Sends the input over a connection in two parts. Returns whether it consists of whole frames.
template <ipc::FrameRules kRules>
bool FuzzFrames(Input input) {
  int ends[2];
  Check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socket pair");
  const ipc::UniqueFd reader_end(ends[0]);
  ipc::UniqueFd writer_end(ends[1]);
  ipc::FrameReader reader(kRules);
  ipc::Frame frame;
  std::size_t bytes_read = 0;
  const std::size_t cut = input.empty() ? 0 : std::to_integer<std::size_t>(input[0]) % input.size();
  for (const Input part : {input.first(cut), input.subspan(cut)}) {
    if (!part.empty()) (void)::send(writer_end.get(), part.data(), part.size(), MSG_DONTWAIT);
    for (;;) {
      const auto progress = reader.Read(reader_end.get(), frame);
      if (!progress.ok()) return false;
      if (*progress != ipc::FrameReader::Progress::kFrame) break;
      const auto rule = kRules(frame.type);
      Check(rule && frame.payload.size() <= rule->payload_bytes_max && frame.fds.empty(),
            "a frame is within its rule");
      bytes_read += sizeof(ipc::FrameHeader) + frame.payload.size();
    }
  }
  return bytes_read > 0 && bytes_read == input.size();
}

template <typename... Messages>
void AddTargets(ipc::MessageList<Messages...>, std::vector<WireTarget>& targets) {
  (targets.push_back({GetSelector(Messages::kType), Messages::kName, FuzzMessage<Messages>}), ...);
}

std::vector<WireTarget> AllTargets() {
  std::vector<WireTarget> targets = {
      {kRingSelector, "ring", FuzzRing},
      {kFirstFramesSelector, "first frames", FuzzFrames<ipc::FirstFrameRules>},
      {kClientFramesSelector, "client's frames", FuzzFrames<ipc::ClientFrameRules>},
      {kServerFramesSelector, "server's frames", FuzzFrames<ipc::ServerFrameRules>},
  };
  AddTargets(ipc::FirstMessages(), targets);
  AddTargets(ipc::ClientMessages(), targets);
  AddTargets(ipc::ServerMessages(), targets);
  AddTargets(ipc::ToWorkerMessages(), targets);
  AddTargets(ipc::ToBrokerMessages(), targets);
  // Attach is above.
  AddTargets(ipc::MessageList<ipc::MovedSession, ipc::MovedBuffer, ipc::MoveCommit>(), targets);
  return targets;
}

}  // namespace

std::span<const WireTarget> WireTargets() {
  static const std::vector<WireTarget> targets = AllTargets();
  return targets;
}

const WireTarget* GetTarget(Input input) {
  if (input.empty()) return nullptr;
  const auto selector = std::to_integer<std::uint8_t>(input[0]);
  const auto found = std::ranges::find(WireTargets(), selector, &WireTarget::selector);
  return found == WireTargets().end() ? nullptr : &*found;
}

}  // namespace gpushared::testing
