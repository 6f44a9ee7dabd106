// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#define NCURSES_NOMACROS  // Disables ncurses' macros, whose names are ordinary words.
#include <curses.h>

namespace gpushared::server::top {
namespace {

constexpr const char* kInstead = "; use gpusharedctl ps --watch, which prints a table repeatedly";
constexpr int kEscapeWaitMs = 25;  // The sequence of a key arrives within this time, also over ssh.

// The attributes without colours are chosen so that important cells still stand out.
struct Rendering {
  Style style;
  short colour;  // -1 means the terminal's default.
  short of_256;  // For terminals with 256 colours; classes have the colours of the web page.
  attr_t coloured, plain;
};
constexpr std::array kRenderings = {
    Rendering{Style::kPlain, -1, -1, A_NORMAL, A_NORMAL},
    Rendering{Style::kStrong, -1, -1, A_BOLD, A_BOLD},
    Rendering{Style::kDim, -1, -1, A_DIM, A_NORMAL},
    Rendering{Style::kHeading, COLOR_GREEN, COLOR_GREEN, A_REVERSE, A_REVERSE},
    Rendering{Style::kSelected, COLOR_CYAN, COLOR_CYAN, A_REVERSE, A_REVERSE},
    Rendering{Style::kEdited, COLOR_YELLOW, COLOR_YELLOW, A_REVERSE | A_BOLD, A_UNDERLINE | A_BOLD},
    Rendering{Style::kHigh, COLOR_YELLOW, 208, A_NORMAL, A_NORMAL},
    Rendering{Style::kNormal, COLOR_GREEN, 36, A_NORMAL, A_NORMAL},
    Rendering{Style::kLow, COLOR_CYAN, 32, A_NORMAL, A_NORMAL},
    Rendering{Style::kMemory, COLOR_BLUE, COLOR_BLUE, A_NORMAL, A_NORMAL},
    Rendering{Style::kWarning, COLOR_YELLOW, COLOR_YELLOW, A_BOLD, A_BOLD},
    Rendering{Style::kAlarm, COLOR_RED, COLOR_RED, A_BOLD | A_REVERSE, A_BOLD | A_REVERSE},
};

short GetPair(Style style) { return static_cast<short>(static_cast<int>(style) + 1); }

attr_t GetAttributes(Style style, bool has_colours) {
  const Rendering& rendering = kRenderings.at(static_cast<std::size_t>(style));
  if (!has_colours) return rendering.plain;
  return rendering.coloured | static_cast<attr_t>(COLOR_PAIR(GetPair(style)));
}

std::optional<Key> GetKey(int code) {
  switch (code) {
    case KEY_UP:
      return Key::kUp;
    case KEY_DOWN:
      return Key::kDown;
    case KEY_PPAGE:
      return Key::kPageUp;
    case KEY_NPAGE:
      return Key::kPageDown;
    case KEY_HOME:
      return Key::kHome;
    case KEY_END:
      return Key::kEnd;
    case KEY_ENTER:
    case '\n':
    case '\r':
      return Key::kEnter;
    case KEY_BACKSPACE:
    case 0x7f:
    case '\b':
      return Key::kBackspace;
    case 0x1b:
      return Key::kEscape;
    default:
      break;
  }
  if (code >= 0x20 && code < 0x7f) return Key::kCharacter;
  return std::nullopt;
}

Status NoTerminal(const std::string& why) { return {StatusCode::kUnsupported, why + kInstead}; }

}  // namespace

Result<std::unique_ptr<Terminal>> Terminal::Open() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    return NoTerminal("top requires a terminal, but stdin or stdout is not one");
  }
  const char* const name = std::getenv("TERM");
  if (name == nullptr || *name == '\0') {
    return NoTerminal("top requires a known terminal, but TERM is not set");
  }
  // Sets character handling only, so that numbers keep their decimal point.
  ::setlocale(LC_CTYPE, "");
  SCREEN* const screen = ::newterm(nullptr, stdout, stdin);
  if (screen == nullptr) {
    return NoTerminal(std::string("unknown terminal TERM=") + name);
  }
  std::unique_ptr<Terminal> terminal(new Terminal(screen));
  if (::tigetstr("cup") == nullptr || ::tigetstr("clear") == nullptr) {
    terminal.reset();
    return NoTerminal(std::string("top needs a terminal that can move its cursor, which TERM=") +
                      name + " cannot");
  }
  return terminal;
}

Terminal::Terminal(screen* owned)
    : screen_(owned),
      charset_(std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0 ? Charset::kUtf8
                                                                 : Charset::kAscii) {
  ::cbreak();
  ::noecho();
  ::nonl();
  ::curs_set(0);
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::set_escdelay(kEscapeWaitMs);
  const char* const no_colour = std::getenv("NO_COLOR");
  has_colours_ = (no_colour == nullptr || *no_colour == '\0') && ::has_colors() &&
                 ::start_color() == OK && ::use_default_colors() == OK;
  if (!has_colours_) return;
  for (const Rendering& rendering : kRenderings) {
    ::init_pair(GetPair(rendering.style), COLORS >= 256 ? rendering.of_256 : rendering.colour, -1);
  }
}

Terminal::~Terminal() {
  // Moves to the last row, because without an alternate screen the shell continues there, below the
  // table.
  ::wmove(stdscr, getmaxy(stdscr) - 1, 0);
  ::wclrtoeol(stdscr);
  ::wrefresh(stdscr);
  ::endwin();
  ::delscreen(screen_);
}

Size Terminal::size() const {
  const int columns = getmaxx(stdscr), rows = getmaxy(stdscr);
  return {static_cast<std::size_t>(columns), static_cast<std::size_t>(rows)};
}

void Terminal::Show(const Canvas& canvas) {
  ::werase(stdscr);
  for (std::size_t row = 0; row < canvas.size().rows; ++row) {
    const std::vector<Cell>& cells = canvas.Row(row);
    for (std::size_t at = 0; at < cells.size();) {
      const std::size_t begin = at;
      const Style style = cells[begin].style;
      std::string run;
      for (; at < cells.size() && cells[at].style == style; ++at) run += cells[at].text;
      ::wattrset(stdscr, static_cast<int>(GetAttributes(style, has_colours_)));
      // Each run of cells is positioned explicitly, so that a character with a different width in
      // ncurses displaces nothing else.
      ::mvwaddnstr(stdscr, static_cast<int>(row), static_cast<int>(begin), run.c_str(), -1);
    }
  }
  ::wrefresh(stdscr);
}

std::optional<KeyPress> Terminal::ReadKey() {
  while (true) {
    const int code = ::wgetch(stdscr);
    if (code == ERR) {
      pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      has_gone_ =
          ::poll(&input, 1, 0) == 1 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
      return std::nullopt;
    }
    if (const std::optional<Key> key = GetKey(code)) {
      const bool is_character = *key == Key::kCharacter;
      return KeyPress{*key, is_character ? static_cast<char>(code) : '\0'};
    }
  }
}

}  // namespace gpushared::server::top
