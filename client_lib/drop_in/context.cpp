// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/context.h"

#include <string>
#include <utility>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

// Contexts and streams share one counter; numbers are never reused.
std::uint64_t NextId() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Releases a thread's streams when the thread ends.
class ThreadStreams {
 public:
  ~ThreadStreams() {
    for (const std::weak_ptr<Context>& context : contexts_) {
      if (const std::shared_ptr<Context> live = context.lock()) live->DropThreadStream(thread_);
    }
  }
  std::uint64_t thread() const { return thread_; }
  void Add(std::weak_ptr<Context> context) { contexts_.push_back(std::move(context)); }

 private:
  const std::uint64_t thread_ = NextId();
  std::vector<std::weak_ptr<Context>> contexts_;
};

ThreadStreams& OfThisThread() {
  static thread_local ThreadStreams streams;
  return streams;
}

}  // namespace

CudaStream::CudaStream(std::shared_ptr<Context> context, Stream stream, unsigned flags, Kind kind)
    : context_(std::move(context)),
      stream_(std::move(stream)),
      flags_(flags),
      kind_(kind),
      id_(NextId()) {}

namespace {

// Stream attributes: access policy window, synchronization policy, priority, and the two attributes
// of memory synchronization domains.
bool IsOfStreams(int attribute) {
  return attribute == 1 || attribute == 3 || (attribute >= 8 && attribute <= 10);
}

}  // namespace

bool CudaStream::SetAttribute(int attribute, const LaunchAttribute::Value& value) {
  if (!IsOfStreams(attribute)) return false;
  const MutexLock lock(attributes_mutex_);
  attributes_[attribute] = value;
  return true;
}

bool CudaStream::GetAttribute(int attribute, LaunchAttribute::Value& value) const {
  if (!IsOfStreams(attribute)) return false;
  const MutexLock lock(attributes_mutex_);
  const auto found = attributes_.find(attribute);
  value = found == attributes_.end() ? LaunchAttribute::Value{} : found->second;
  return true;
}

void CudaStream::CopyAttributes(const CudaStream& from) {
  if (&from == this) return;
  std::map<int, LaunchAttribute::Value> copied;
  {
    const MutexLock lock(from.attributes_mutex_);
    copied = from.attributes_;
  }
  const MutexLock lock(attributes_mutex_);
  attributes_ = std::move(copied);
}

Context::Context(std::shared_ptr<Session> session, int ordinal, unsigned flags)
    : id_(NextId()), session_(std::move(session)), ordinal_(ordinal), flags_(flags) {
  const std::size_t values[] = {2, 2048, 128, 0, 0};
  for (std::size_t i = 0; i < limits_.size(); ++i) limits_[i].store(values[i]);
}

std::shared_ptr<Context> Context::Ended(int ordinal) {
  auto ended = std::make_shared<Context>(nullptr, ordinal, 0);
  ended->has_ended_.store(true, std::memory_order_release);
  return ended;
}

Code Context::GetLimit(int limit, std::size_t& value) const {
  if (limit < 0 || limit >= kLimits) return Code::kUnsupportedLimit;
  value = limit < Session::kKernelLimits
              ? session_->KernelLimit(limit)
              : limits_[static_cast<std::size_t>(limit - Session::kKernelLimits)].load();
  return Code::kSuccess;
}

Code Context::SetLimit(int limit, std::size_t value) {
  if (limit < 0 || limit >= kLimits) return Code::kUnsupportedLimit;
  if (limit < Session::kKernelLimits) return session_->SetKernelLimit(limit, value);
  limits_[static_cast<std::size_t>(limit - Session::kKernelLimits)].store(value);
  return Code::kSuccess;
}

void Context::End() {
  has_ended_.store(true, std::memory_order_release);
  std::shared_ptr<CudaStream> legacy;
  std::map<std::uint64_t, std::shared_ptr<CudaStream>> thread_streams;
  {
    const MutexLock lock(streams_mutex_);
    legacy.swap(legacy_);
    thread_streams.swap(thread_streams_);
  }
  session_->addresses().RemoveContext(id_);
  session_->textures().RemoveContext(id_);
}

Result<std::shared_ptr<CudaStream>> Context::Attach(Stream stream, unsigned flags) {
  auto made = std::make_shared<CudaStream>(shared_from_this(), std::move(stream), flags);
  if (!made->is_blocking()) return made;
  const MutexLock lock(order_mutex_);
  std::erase_if(blocking_, [](const std::weak_ptr<CudaStream>& it) { return it.expired(); });
  blocking_.push_back(made);
  has_blocking_.store(true, std::memory_order_relaxed);
  return made;
}

Result<std::shared_ptr<CudaStream>> Context::NewStream(unsigned flags) {
  Result<Stream> stream = session_->client().CreateStream();
  if (!stream.ok()) return stream.status();
  return Attach(std::move(*stream), flags);
}

// A session has 255 streams besides its first one. If the program uses all of them, further default
// streams share the first one: they are ordered more strictly than CUDA requires, but creating them
// cannot fail.
Result<Stream> Context::DefaultQueue() const {
  Result<Stream> stream = session_->client().CreateStream();
  if (stream.ok() || stream.status().code() != StatusCode::kLimitExceeded) return stream;
  return session_->client().default_stream();
}

Result<std::shared_ptr<CudaStream>> Context::LegacyStream() {
  const MutexLock lock(streams_mutex_);
  if (has_ended()) return Status(StatusCode::kDisconnected, "the context has ended");
  if (legacy_ == nullptr) {
    Result<Stream> stream = DefaultQueue();
    if (!stream.ok()) return stream.status();
    legacy_ = std::make_shared<CudaStream>(shared_from_this(), std::move(*stream), 0,
                                           CudaStream::Kind::kLegacy);
    const MutexLock order_lock(order_mutex_);
    ordered_legacy_ = legacy_;
    has_legacy_.store(true, std::memory_order_relaxed);
  }
  return legacy_;
}

Result<std::shared_ptr<CudaStream>> Context::ThreadStream() {
  ThreadStreams& mine = OfThisThread();
  const MutexLock lock(streams_mutex_);
  if (has_ended()) return Status(StatusCode::kDisconnected, "the context has ended");
  if (const auto found = thread_streams_.find(mine.thread()); found != thread_streams_.end()) {
    return found->second;
  }
  Result<Stream> stream = DefaultQueue();
  if (!stream.ok()) return stream.status();
  Result<std::shared_ptr<CudaStream>> made = Attach(std::move(*stream), 0);
  mine.Add(weak_from_this());
  thread_streams_[mine.thread()] = *made;
  return made;
}

void Context::DropThreadStream(std::uint64_t thread) {
  std::shared_ptr<CudaStream> dropped;
  const MutexLock lock(streams_mutex_);
  const auto found = thread_streams_.find(thread);
  if (found == thread_streams_.end()) return;
  dropped = std::move(found->second);
  thread_streams_.erase(found);
}

Status Context::WaitFor(const Stream& waiter, const Stream& earlier) const {
  const Result<Event> point = session_->client().CreateEvent();
  if (!point.ok()) return point.status();
  if (Status status = earlier.Record(*point); !status.ok()) return status;
  // If the work has already finished, no wait is submitted.
  const Status ended = point->Query();
  return ended.code() == StatusCode::kNotReady ? waiter.Wait(*point) : ended;
}

std::vector<std::shared_ptr<CudaStream>> Context::OrderedBefore(const CudaStream& stream) {
  std::vector<std::shared_ptr<CudaStream>> before;
  if (!stream.is_blocking()) return before;
  const auto add = [&](const std::weak_ptr<CudaStream>& weak) {
    if (std::shared_ptr<CudaStream> other = weak.lock()) before.push_back(std::move(other));
  };
  const MutexLock lock(order_mutex_);
  if (stream.is_legacy()) {
    for (const std::weak_ptr<CudaStream>& other : blocking_) add(other);
  } else {
    add(ordered_legacy_);
  }
  return before;
}

Status Context::Order(CudaStream& stream) {
  if (!stream.is_blocking()) return Status::Ok();
  // Relaxed: a thread that orders work of two streams has seen both streams created.
  const std::atomic<bool>& has_peer = stream.is_legacy() ? has_blocking_ : has_legacy_;
  if (!has_peer.load(std::memory_order_relaxed)) return Status::Ok();
  const MutexLock lock(order_mutex_);
  const std::shared_ptr<CudaStream> legacy = ordered_legacy_.lock();
  if (legacy == nullptr) return Status::Ok();
  if (&stream != legacy.get()) {
    // Acquire: pairs with CountSubmission, so that the counted commands are in the queue.
    const std::uint64_t submitted = legacy->submitted_.load(std::memory_order_acquire);
    std::uint64_t& awaited = GetWaits(stream).waits_for_legacy;
    if (std::exchange(awaited, submitted) == submitted) return Status::Ok();
    return WaitFor(stream.stream(), legacy->stream());
  }
  for (const std::weak_ptr<CudaStream>& weak : blocking_) {
    const std::shared_ptr<CudaStream> other = weak.lock();
    if (other == nullptr) continue;
    const std::uint64_t submitted = other->submitted_.load(std::memory_order_acquire);
    std::uint64_t& awaited = GetWaits(*other).awaited_by_legacy;
    if (std::exchange(awaited, submitted) == submitted) continue;
    if (Status status = WaitFor(legacy->stream(), other->stream()); !status.ok()) return status;
  }
  return Status::Ok();
}

}  // namespace gpushared::drop_in
