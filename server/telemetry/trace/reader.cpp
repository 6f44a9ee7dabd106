// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/trace/reader.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "server/telemetry/trace/event_words.h"

namespace gpushared::trace {
namespace {

const Memory& MemoryFor(const ipc::SharedSegment& memory) { return memory.As<Memory>(); }

// The oldest names that may still be there.
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
                  "trace rejected: the server writes another layout than this program reads");
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
  // First, so that the names of all these events are there.
  const std::uint64_t end = RingReader<EventRing>::Written(MemoryFor(memory_).events);
  ReadNames();
  while (const std::size_t count = events_.Read(end, copies_->events)) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<Entry> entry = FromWords(copies_->events[i]);
      if (!entry) continue;
      ++progress.events;
      if (const auto* const departure = std::get_if<Departure>(&*entry)) {
        tell(GetEvent(*departure));
      } else if (const auto* const request = std::get_if<Request>(&*entry)) {
        tell(*request);
      } else {
        tell(std::get<Depth>(*entry));
      }
    }
  }
  progress.lost = events_.lost() - lost_before;
  return progress;
}

Slice Reader::GetEvent(const Departure& departure) {
  Slice slice{
      .session = departure.session,
      .kernel = departure.kernel,
      .request = static_cast<std::uint32_t>(departure.request),
      .shape = departure.shape,
      .work = departure.work,
      .cut = departure.cut,
      .of_class = departure.of_class,
      .stream = departure.stream,
      .is_part = departure.is_part,
      .has_failed = departure.has_failed,
      .submitted = departure.submitted,
      .started = std::min(std::max(departure.started, departure.submitted), departure.left_at),
      .charged = departure.charged,
      .left = departure.left};
  slice.waited = std::max(departure.submitted - departure.queued, scheduler::Duration::zero());
  slice.ended = std::max(slice.started, std::min(departure.ended, departure.left_at));
  if (slice.cut == Cut::kStopped) slice.stop_asked = departure.stop_asked;
  // As late as it can be: behind it is the time of what is still there.
  slice.charged_from =
      std::max(charged_until_, departure.left_at - departure.uncharged - departure.charged);
  // A ring that lies could push it beyond all times. An entry's are below 2^61 ns.
  constexpr scheduler::TimePoint kLatest(scheduler::Duration(std::int64_t{1} << 62));
  charged_until_ = std::min(slice.charged_from + slice.charged, kLatest);
  return slice;
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
  return std::string(WorkText(slice.work));
}

}  // namespace gpushared::trace
