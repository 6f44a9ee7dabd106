// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_STREAM_SCOPE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_STREAM_SCOPE_H_

#include <memory>

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Scope of a call that names a stream. The call runs in the context of that stream, regardless of
// the current context. With a default stream or an unknown handle it runs in the current context.
//
// Confined to its thread.
class StreamScope {
 public:
  explicit StreamScope(StreamHandle handle);
  ~StreamScope() { innermost_ = outer_; }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  // Returns the context of the stream that the current call names; null if there is none.
  static const std::shared_ptr<Context>* context() {
    return innermost_ == nullptr ? nullptr : &innermost_->stream_->shared_context();
  }
  // Returns the stream of a handle other than the default streams; null if there is none.
  static std::shared_ptr<CudaStream> Find(StreamHandle handle);

 private:
  // NOLINTNEXTLINE: thread-local, but clang-tidy reports it as a global variable.
  static inline thread_local const StreamScope* innermost_ = nullptr;
  const StreamScope* const outer_ = innermost_;
  const StreamHandle handle_;
  std::shared_ptr<CudaStream> stream_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_STREAM_SCOPE_H_
