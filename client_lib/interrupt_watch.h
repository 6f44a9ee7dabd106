// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_INTERRUPT_WATCH_H_
#define GPUSHARED_CLIENT_LIB_INTERRUPT_WATCH_H_

#include <cstdint>

namespace gpushared::client {

// Detects SIGINT while a call waits. The program's own handler still runs, but a program such as
// Python acts on the signal only after the waiting call has returned.
//
// Does nothing in a program without a handler, because there SIGINT either ends the process or is
// ignored. A handler that the program installs during a watch replaces the handler of the watch,
// and SIGINT is then not detected.
//
// Confined to one thread; any number of threads may watch at the same time.
class InterruptWatch {
 public:
  explicit InterruptWatch(bool is_wanted);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Returns whether SIGINT has arrived since the watch began.
  bool HasCome() const;

 private:
  const bool is_wanted_;
  std::uint32_t seen_ = 0;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_INTERRUPT_WATCH_H_
