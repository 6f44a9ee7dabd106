// SPDX-License-Identifier: Apache-2.0
// The operator's terminal, controlled with ncurses.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_TERMINAL_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_TERMINAL_H_

#include <memory>
#include <optional>

#include "gpushared/result.h"

#include "server/tools/ctl/top/canvas.h"
#include "server/tools/ctl/top/view.h"

struct screen;  // The type behind ncurses' SCREEN.

namespace gpushared::server::top {

// Owns the screen of stdin and stdout from Open until destruction, which restores the terminal. At
// most one may exist, because ncurses keeps its state in globals.
//
// Confined to one thread.
class Terminal {
 public:
  // kUnsupported if stdin or stdout is not a terminal, if TERM is unset or unknown, or if the
  // terminal cannot move its cursor; the message suggests an alternative. Uses no colours if the
  // environment variable NO_COLOR is not empty.
  static Result<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Current size; it changes with the window.
  Size size() const;
  Charset charset() const { return charset_; }
  void Show(const Canvas& canvas);
  // Returns a pressed key, or no value. Never blocks. Should be called when stdin is readable and
  // after a signal, because a change of the window's size interrupts poll.
  std::optional<KeyPress> ReadKey();
  // Returns true if the terminal was closed, so no further keys can arrive.
  bool has_gone() const { return has_gone_; }

 private:
  explicit Terminal(screen* owned);

  screen* screen_;
  Charset charset_;
  bool has_colours_ = false;
  bool has_gone_ = false;
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_TERMINAL_H_
