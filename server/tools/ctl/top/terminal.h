// SPDX-License-Identifier: Apache-2.0
// The operator's terminal, through ncurses.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_TERMINAL_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_TERMINAL_H_

#include <memory>
#include <optional>

#include "gpushared/result.h"

#include "server/tools/ctl/top/canvas.h"
#include "server/tools/ctl/top/view.h"

struct screen;  // SCREEN of ncurses.

namespace gpushared::server::top {

// Owns the screen of stdin and stdout from Open to its end, which gives the terminal back as it
// was. There is one at a time, since ncurses keeps it in its own globals.
//
// Confined to one thread.
class Terminal {
 public:
  // kUnsupported: stdin or stdout is no terminal, or one that cannot move its cursor; the sentence
  // says what to use instead. NO_COLOR in the environment keeps it without colours.
  static Result<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // As it is now; it changes when its window does.
  Size size() const;
  Charset charset() const { return charset_; }
  void Show(const Canvas& canvas);
  // A key that was pressed, or nothing yet. Never blocks. Readiness of stdin tells when to ask; so
  // does a signal, since a window that changes its size interrupts poll.
  std::optional<KeyPress> ReadKey();
  // Whether the terminal has gone: nobody presses keys any more.
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
