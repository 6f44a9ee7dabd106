// SPDX-License-Identifier: Apache-2.0
// What most calls begin with: the calling thread's context, and the stream that a handle names.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CURRENT_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CURRENT_H_

#include <memory>
#include <vector>

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// The calling thread's stack of contexts.
//
// Confined to its thread.
class ContextStack {
 public:
  static constexpr std::size_t kDepthMax = 4096;
  static ContextStack& Get();

  bool empty() const { return entries_.empty(); }
  // Null when it is empty.
  ContextHandle top() const { return entries_.empty() ? nullptr : entries_.back().handle; }
  // The context behind the top, in its present incarnation; null when it has ended.
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

// The context of a call that needs one: that of the stream which the call names, else the calling
// thread's current one.
class Current {
 public:
  enum class After : std::uint8_t { kFaultReject, kFaultAllow };
  explicit Current(After after = After::kFaultReject);

  // Why there is none, or the fault that its session has met.
  Code code() const { return code_; }
  bool ok() const { return code_ == Code::kSuccess; }
  // The following require ok().
  Context& operator*() const { return **context_; }
  Context* operator->() const { return context_->get(); }
  const std::shared_ptr<Context>& shared() const { return *context_; }
  // The number of a status of this context's session.
  Code GetCode(const Status& status) const { return (*context_)->session().GetCode(status); }

 private:
  const std::shared_ptr<Context>* context_ = nullptr;
  Code code_ = Code::kSuccess;
};

// An array in the memory of this context's session; null for any other handle.
std::shared_ptr<CudaArray> FindArray(const Current& current, ArrayHandle handle);

// The length of one submission to a stream: orders it, then counts it. Waits for functions of the
// program that come before it.
class Submission {
 public:
  explicit Submission(CudaStream& stream);
  ~Submission() { Context::CountSubmission(stream_); }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // The status of `submit`, a call that takes the stream.
  template <typename Submit>
  Status Run(const Submit& submit) const {
    return order_.ok() ? submit(stream_.stream()) : order_;
  }

 private:
  CudaStream& stream_;
  const Status order_;
};

// The stream that a handle names, in this context when it is one of the default streams.
class StreamChoice {
 public:
  StreamChoice(const Current& current, StreamHandle handle);

  Code code() const { return code_; }
  bool ok() const { return code_ == Code::kSuccess; }
  // The following require ok().
  const std::shared_ptr<CudaStream>& shared() const { return stream_; }
  CudaStream& operator*() const { return *stream_; }
  CudaStream* operator->() const { return stream_.get(); }

  // The stream's commands become nodes of a graph.
  bool is_captured() const;
  // Requires is_captured().
  Code Capture(Work work) const;

  // Whether commands may be submitted now: never to a stream that is captured.
  Code Allowed() const {
    if (!ok() || !Driver::Get().captures.Any()) [[likely]]
      return code_;
    return AllowedBesideCaptures();
  }

  // Submits what `submit` puts on the stream. `use`: of the mirrored memory of its session.
  template <typename Submit>
  Code Run(const Submit& submit, const MirrorUse& use = {}) const {
    const Code code = Allowed();
    return code == Code::kSuccess ? stream_->context().session().GetCode(Put(submit, use)) : code;
  }
  // The same for what also waits.
  template <typename Submit>
  Code RunAndWait(const Submit& submit, const MirrorUse& use = {}) const {
    // What mirrored memory gets is not waited for under its lock.
    if (!use.is_none()) {
      const Code code = Run(submit, use);
      return code == Code::kSuccess ? Synchronize() : code;
    }
    const Code code = Allowed();
    return code == Code::kSuccess ? stream_->context().session().AfterWork(Put(submit, use)) : code;
  }
  // Asks about what is on the stream, or waits for it.
  template <typename Question>
  Code Ask(const Question& question) const {
    if (const Code code = Allowed(); code != Code::kSuccess) return code;
    return stream_->context().session().AfterWork(Submission(*stream_).Run(question));
  }
  Code Synchronize() const {
    return Ask([](const Stream& queue) { return queue.Synchronize(); });
  }

 private:
  Code AllowedBesideCaptures() const;
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

// The answer to a call that could spoil a capture of this thread, or of another one.
Code RejectWhileCapturing();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CURRENT_H_
