// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CONTEXT_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/session.h"

namespace gpushared::drop_in {

class Context;

// Stream of the program.
//
// Thread-safe.
class CudaStream {
 public:
  enum class Kind : std::uint8_t { kOther, kLegacy };
  CudaStream(std::shared_ptr<Context> context, Stream stream, unsigned flags,
             Kind kind = Kind::kOther);

  Context& context() const { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }
  const Stream& stream() const { return stream_; }
  unsigned flags() const { return flags_; }
  std::uint64_t id() const { return id_; }
  bool is_legacy() const { return kind_ == Kind::kLegacy; }
  // Stores a value of cuStreamSetAttribute; such hints have no effect here. Returns false if CUDA
  // has no such stream attribute.
  bool SetAttribute(int attribute, const LaunchAttribute::Value& value);
  bool GetAttribute(int attribute, LaunchAttribute::Value& value) const;
  // Replaces the attributes by those of another stream.
  void CopyAttributes(const CudaStream& from);
  // Whether host functions of the program are queued or running; counted by host_calls.h.
  bool has_host_calls() const { return host_calls_.load(std::memory_order_acquire) != 0; }
  void CountHostCall(int change) { host_calls_.fetch_add(change, std::memory_order_acq_rel); }
  // Whether work of this stream and of the legacy stream wait for each other.
  bool is_blocking() const { return (flags_ & device::cuda::kStreamNonBlocking) == 0; }

 private:
  friend class Context;
  const std::shared_ptr<Context> context_;
  const Stream stream_;
  const unsigned flags_;
  const Kind kind_;
  const std::uint64_t id_;
  mutable Mutex attributes_mutex_;
  std::map<int, LaunchAttribute::Value> attributes_ GPUSHARED_GUARDED_BY(attributes_mutex_);
  std::atomic<int> host_calls_{0};
  std::atomic<std::uint64_t> submitted_{0};  // Number of submissions made.
  // Which submissions are already ordered: this stream waits for those of the legacy stream up to
  // number `waits_for_legacy`, the legacy stream for those of this stream up to
  // `awaited_by_legacy`.
  struct LegacyWaits {
    std::uint64_t waits_for_legacy = 0;
    std::uint64_t awaited_by_legacy = 0;
  };
  LegacyWaits legacy_waits_;  // Accessed through Context::GetWaits.
};

// Context: tracks the objects of a session that end together.
//
// Thread-safe.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Not the id of any context.
  static constexpr std::uint64_t kNoId = 0;
  Context(std::shared_ptr<Session> session, int ordinal, unsigned flags);
  // Returns a placeholder for a handle that outlives its context. Keeps no session.
  static std::shared_ptr<Context> Ended(int ordinal);

  std::uint64_t id() const { return id_; }
  int ordinal() const { return ordinal_; }
  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  // Handle that the program has; the primary context has the same handle in every incarnation.
  ContextHandle handle() const { return handle_.load(std::memory_order_relaxed); }
  void set_handle(ContextHandle handle) { handle_.store(handle, std::memory_order_relaxed); }
  unsigned flags() const { return flags_.load(std::memory_order_relaxed); }
  void set_flags(unsigned flags) { flags_.store(flags, std::memory_order_relaxed); }

  // Get and set a CUlimit. kUnsupportedLimit for limits that CUDA does not have. Stack, printed
  // text and heap apply to the kernels of the session; the others are only stored.
  Code GetLimit(int limit, std::size_t& value) const;
  Code SetLimit(int limit, std::size_t value);

  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  // Frees what only the context owns: its default streams, memory, textures and surfaces.
  void End();

  Result<std::shared_ptr<CudaStream>> NewStream(unsigned flags);
  Result<std::shared_ptr<CudaStream>> LegacyStream();
  // Returns the legacy stream if it exists; null otherwise.
  std::shared_ptr<CudaStream> FindLegacyStream() {
    const MutexLock lock(streams_mutex_);
    return legacy_;
  }
  // Returns the default stream of the calling thread, which ends with the thread.
  Result<std::shared_ptr<CudaStream>> ThreadStream();
  void DropThreadStream(std::uint64_t thread);

  // Returns the other streams whose work precedes the next command of `stream` according to CUDA's
  // rules for the legacy stream.
  std::vector<std::shared_ptr<CudaStream>> OrderedBefore(const CudaStream& stream);
  // Makes the next command of `stream` wait for the work in the streams of OrderedBefore.
  Status Order(CudaStream& stream);
  // Called after a command was submitted to `stream`, so that later submissions to the streams that
  // are ordered with it wait for the command.
  static void CountSubmission(CudaStream& stream) {
    stream.submitted_.fetch_add(1, std::memory_order_release);
  }

 private:
  // Returns the client stream behind a default stream. If all client streams are in use, returns
  // the session's first one, because CUDA does not let the creation of a default stream fail.
  Result<Stream> DefaultQueue() const;
  Result<std::shared_ptr<CudaStream>> Attach(Stream stream, unsigned flags);
  Status WaitFor(const Stream& waiter, const Stream& earlier) const;
  // `stream` belongs to this context.
  CudaStream::LegacyWaits& GetWaits(CudaStream& stream) GPUSHARED_REQUIRES(order_mutex_) {
    return stream.legacy_waits_;
  }

  const std::uint64_t id_;
  const std::shared_ptr<Session> session_;
  const int ordinal_;
  std::atomic<ContextHandle> handle_{nullptr};
  std::atomic<unsigned> flags_;
  std::atomic<bool> has_ended_{false};
  static constexpr int kLimits = 8;  // CUlimit: stack, printf, heap, sync depth, pending, L2, ...
  std::array<std::atomic<std::size_t>, kLimits - Session::kKernelLimits> limits_;

  Mutex streams_mutex_;
  // The legacy stream; created on demand.
  std::shared_ptr<CudaStream> legacy_ GPUSHARED_GUARDED_BY(streams_mutex_);
  // The default stream of each thread.
  std::map<std::uint64_t, std::shared_ptr<CudaStream>> thread_streams_
      GPUSHARED_GUARDED_BY(streams_mutex_);

  // Also guards the waits of this context's streams.
  Mutex order_mutex_;
  std::weak_ptr<CudaStream> ordered_legacy_ GPUSHARED_GUARDED_BY(order_mutex_);
  std::vector<std::weak_ptr<CudaStream>> blocking_ GPUSHARED_GUARDED_BY(order_mutex_);
  // Whether a legacy or a blocking stream has ever existed; never reset. Most programs use only one
  // of the two kinds.
  std::atomic<bool> has_legacy_{false}, has_blocking_{false};
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CONTEXT_H_
