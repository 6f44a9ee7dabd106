// SPDX-License-Identifier: Apache-2.0
// Prologue of most calls: the context of the calling thread, and the stream of a handle.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CURRENT_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CURRENT_H_

#include <memory>
#include <vector>

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Stack of contexts of the calling thread.
//
// Confined to its thread.
class ContextStack {
 public:
  static constexpr std::size_t kDepthMax = 4096;
  static ContextStack& Get();

  bool empty() const { return entries_.empty(); }
  // Null if the stack is empty.
  ContextHandle top() const { return entries_.empty() ? nullptr : entries_.back().handle; }
  // Returns the context of the top handle in its current incarnation; null if it has ended.
  const std::shared_ptr<Context>& TopContext();
  Code Push(ContextHandle handle);
  ContextHandle Pop();

 private:
  struct Entry {
    ContextHandle handle;
    std::shared_ptr<Context> context;
  };
  std::vector<Entry> entries_;
};

// Context of a call that needs one: that of the stream that the call names, otherwise the current
// context of the calling thread.
class Current {
 public:
  enum class OnFault : std::uint8_t { kReject, kAllow };
  explicit Current(OnFault on_fault = OnFault::kReject);

  // Returns kSuccess, the reason why there is no context, or the sticky error of the context's
  // session.
  Code code() const { return code_; }
  bool ok() const { return code_ == Code::kSuccess; }
  // The following require ok().
  Context& operator*() const { return **context_; }
  Context* operator->() const { return context_->get(); }
  const std::shared_ptr<Context>& shared() const { return *context_; }
  // Returns the driver's error code for a status of this context's session.
  Code GetCode(const Status& status) const { return (*context_)->session().GetCode(status); }

 private:
  const std::shared_ptr<Context>* context_ = nullptr;
  Code code_ = Code::kSuccess;
};

// Returns an array in the memory of this context's session; null for any other handle.
std::shared_ptr<CudaArray> FindArray(const Current& current, ArrayHandle handle);

// Scope of one submission to a stream. The constructor waits for host functions of the program that
// precede it and makes the stream wait for the streams that CUDA orders before it (Context::Order);
// the destructor counts the submission.
class Submission {
 public:
  explicit Submission(CudaStream& stream);
  ~Submission() { Context::CountSubmission(stream_); }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Calls `submit` with the client stream and returns its status. If the order of the streams could
  // not be established, returns that error without the call.
  template <typename Submit>
  Status Run(const Submit& submit) const {
    return order_.ok() ? submit(stream_.stream()) : order_;
  }

 private:
  CudaStream& stream_;
  const Status order_;
};

// Stream of a handle; for a default stream, that of this context.
class StreamChoice {
 public:
  StreamChoice(const Current& current, StreamHandle handle);

  Code code() const { return code_; }
  bool ok() const { return code_ == Code::kSuccess; }
  // The following require ok().
  const std::shared_ptr<CudaStream>& shared() const { return stream_; }
  CudaStream& operator*() const { return *stream_; }
  CudaStream* operator->() const { return stream_.get(); }

  // Whether commands of the stream become nodes of a graph.
  bool is_captured() const;
  // Requires is_captured().
  Code Capture(Work work) const;

  // Returns kSuccess if commands may be submitted now, which is never the case for a captured
  // stream.
  Code Allowed() const {
    if (!ok() || !Driver::Get().captures.Any()) [[likely]]
      return code_;
    return CheckCaptures();
  }

  // Submits the commands that `submit` puts on the stream. `use`: the session's mirrored memory
  // that these commands access.
  template <typename Submit>
  Code Run(const Submit& submit, const MirrorUse& use = {}) const {
    const Code code = Allowed();
    return code == Code::kSuccess ? stream_->context().session().GetCode(Put(submit, use)) : code;
  }
  // As Run, and waits for the commands.
  template <typename Submit>
  Code RunAndWait(const Submit& submit, const MirrorUse& use = {}) const {
    // The wait is outside of Run, because mirrored memory must not be awaited under its lock.
    if (!use.is_none()) {
      const Code code = Run(submit, use);
      return code == Code::kSuccess ? Synchronize() : code;
    }
    const Code code = Allowed();
    return code == Code::kSuccess ? stream_->context().session().AfterWork(Put(submit, use)) : code;
  }
  // Queries the work on the stream, or waits for it.
  template <typename Question>
  Code Ask(const Question& question) const {
    if (const Code code = Allowed(); code != Code::kSuccess) return code;
    return stream_->context().session().AfterWork(Submission(*stream_).Run(question));
  }
  Code Synchronize() const {
    return Ask([](const Stream& queue) { return queue.Synchronize(); });
  }

 private:
  Code CheckCaptures() const;
  template <typename Submit>
  Status Put(const Submit& submit, const MirrorUse& use) const {
    const Submission submission(*stream_);
    MirroredMemory& mirrored = stream_->context().session().mirrored();
    if (!use.is_none() && mirrored.has_any()) [[unlikely]] {
      return mirrored.Submit(use, stream_->stream(), stream_->id(),
                             [&] { return submission.Run(submit); });
    }
    return submission.Run(submit);
  }

  std::shared_ptr<CudaStream> stream_;
  Code code_ = Code::kSuccess;
};

// For calls that could invalidate a capture of this or another thread: returns the error if such a
// capture is in progress (and invalidates it), otherwise kSuccess.
Code RejectWhileCapturing();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CURRENT_H_
