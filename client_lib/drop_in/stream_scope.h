// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_STREAM_SCOPE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_STREAM_SCOPE_H_

#include <memory>

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// The length of a call that names a stream: it runs in the stream's context, whichever is current,
// or none. With a default stream, or a handle of none, it runs in the current context.
//
// Confined to its thread.
class StreamScope {
 public:
  explicit StreamScope(StreamHandle handle);
  ~StreamScope() { innermost_ = outer_; }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  // The context of the stream that the thread's call has named; null: none.
  static const std::shared_ptr<Context>* context() {
    return innermost_ == nullptr ? nullptr : &innermost_->stream_->shared_context();
  }
  // The stream behind a handle that is no default one; null: there is none.
  static std::shared_ptr<CudaStream> Find(StreamHandle handle);

 private:
  // NOLINTNEXTLINE: a member of each thread, which clang-tidy takes for a global variable.
  static inline thread_local const StreamScope* innermost_ = nullptr;
  const StreamScope* const outer_ = innermost_;
  const StreamHandle handle_;
  std::shared_ptr<CudaStream> stream_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_STREAM_SCOPE_H_
