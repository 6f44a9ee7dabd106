// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/trace/reader.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "server/telemetry/trace/event_words.h"

namespace gpushared::trace {
namespace {

const Memory& MemoryFor(const ipc::SharedSegment& memory) { return memory.As<Memory>(); }

// Index of the oldest name that may still be in the ring.
std::uint64_t FirstName(std::uint64_t written) {
  return written < kNamesMax ? 0 : written - kNamesMax + 1;
}

}  // namespace

Result<Reader> Reader::Open(ipc::UniqueFd memory) {
  Result<ipc::SharedSegment> mapped =
      ipc::SharedSegment::Map(std::move(memory), {.bytes = kMemoryBytes, .what = "trace"});
  if (!mapped.ok()) return mapped.status();
  if (MemoryFor(*mapped).number != kLayoutNumber) {
    return Status(StatusCode::kVersionMismatch,
                  "trace rejected: the server writes a layout that this program cannot read");
  }
  return Reader(*std::move(mapped));
}

Reader::Reader(ipc::SharedSegment memory)
    : memory_(std::move(memory)),
      copies_(std::make_unique<Copies>()),
      events_(MemoryFor(memory_).events, RingReader<EventRing>::Written(MemoryFor(memory_).events)),
      names_(MemoryFor(memory_).names,
             FirstName(RingReader<NameRing>::Written(MemoryFor(memory_).names))) {}

Reader::Progress Reader::Poll(const std::function<void(const Event&)>& tell) {
  Progress progress;
  const std::uint64_t lost_before = events_.lost();
  // Read before the names, so that the names of all these events are available.
  const std::uint64_t end = RingReader<EventRing>::Written(MemoryFor(memory_).events);
  ReadNames();
  while (const std::size_t count = events_.Read(end, copies_->events)) {
    for (std::size_t i = 0; i < count; ++i) {
      std::optional<Event> event = FromWords(copies_->events[i]);
      if (!event) continue;
      ++progress.events;
      if (auto* const slice = std::get_if<Slice>(&*event)) ChargeAfterOthers(*slice);
      tell(*event);
    }
  }
  progress.lost = events_.lost() - lost_before;
  return progress;
}

void Reader::ChargeAfterOthers(Slice& slice) {
  slice.charged_from = std::max(charged_until_, slice.charged_from);
  // A corrupt ring could push `charged_until_` beyond all valid times. Times of an event are below
  // 2^61 ns.
  constexpr scheduler::TimePoint kLatest(scheduler::Duration(std::int64_t{1} << 62));
  charged_until_ = std::min(slice.charged_from + slice.charged, kLatest);
}

void Reader::ReadNames() {
  const std::uint64_t end = RingReader<NameRing>::Written(MemoryFor(memory_).names);
  while (const std::size_t count = names_.Read(end, copies_->names)) {
    for (std::size_t i = 0; i < count; ++i) {
      if (std::optional<Name> name = FromWords(copies_->names[i])) Keep(*std::move(name));
    }
  }
}

void Reader::Keep(Name name) {
  const Key key = GetKey(name.of, name.key);
  if (!known_.insert_or_assign(key, std::move(name)).second) return;
  known_since_.push_back(key);
  if (known_since_.size() <= kNamesKeptMax) return;
  known_.erase(known_since_.front());
  known_since_.pop_front();
}

const Name* Reader::Find(Name::Of of, std::uint64_t key) const {
  const auto found = known_.find(GetKey(of, key));
  return found == known_.end() ? nullptr : &found->second;
}

std::string Reader::GetWhat(const Slice& slice) const {
  if (slice.work == Work::kLaunch || slice.work == Work::kGraph) {
    if (const Name* const kernel = KernelFor(slice.kernel)) return kernel->text;
  }
  if (slice.work == Work::kTurn) {
    constexpr std::uint64_t kLaunches = 0xffff'ffff;
    const Name* const longest = KernelFor(slice.kernel & ~kLaunches);
    return "turn of " + std::to_string(slice.kernel & kLaunches) + " launches" +
           (longest == nullptr ? "" : ", longest '" + longest->text + "'");
  }
  return std::string(WorkText(slice.work));
}

}  // namespace gpushared::trace
