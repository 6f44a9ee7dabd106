// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_INTERRUPT_WATCH_H_
#define GPUSHARED_CLIENT_LIB_INTERRUPT_WATCH_H_

#include <cstdint>

namespace gpushared::client {

// Notices SIGINT while a call waits. The program's own handler runs as it would without a watch,
// but a waiting call does not return to the program, which therefore could not act on it.
//
// A program without a handler is left alone: SIGINT ends it, or it ignores SIGINT. A handler that
// the program sets during a watch replaces it.
//
// Confined to one thread; any number of threads may watch at one time.
class InterruptWatch {
 public:
  explicit InterruptWatch(bool is_wanted);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Whether SIGINT has come since the watch began.
  bool HasCome() const;

 private:
  const bool is_wanted_;
  std::uint32_t seen_ = 0;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_INTERRUPT_WATCH_H_
