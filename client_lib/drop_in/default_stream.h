// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEFAULT_STREAM_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEFAULT_STREAM_H_

#include <cstdint>

namespace gpushared::drop_in {

// Default stream: the stream of a null handle and of calls without a handle. Each function that
// submits work is exported in both forms.
enum class DefaultStream : std::uint8_t { kLegacy, kPerThread };

// Sets the form for the calling thread for the duration of one call.
class DefaultStreamScope {
 public:
  explicit DefaultStreamScope(DefaultStream meant) : before_(current_) { current_ = meant; }
  ~DefaultStreamScope() { current_ = before_; }
  DefaultStreamScope(const DefaultStreamScope&) = delete;
  DefaultStreamScope& operator=(const DefaultStreamScope&) = delete;

  static DefaultStream current() { return current_; }

 private:
  // NOLINTNEXTLINE: thread-local, but clang-tidy reports it as a global variable.
  static inline thread_local DefaultStream current_ = DefaultStream::kLegacy;
  const DefaultStream before_;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEFAULT_STREAM_H_
