// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/top.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "server/tools/ctl/top/draw.h"
#include "server/tools/ctl/top/terminal.h"
#include "server/tools/ctl/top/watch.h"

namespace gpushared::server::top {
namespace {

using Clock = Watch::Clock;

// Limit of a wait. If the window's size changes just before the wait, the wait is not interrupted,
// so the change becomes visible only after this time.
constexpr std::chrono::seconds kWaitMax{1};

// Waits for a key, an answer, a signal or the timeout.
void Await(const Watch& watch, bool with_keys) {
  std::vector<pollfd> fds;
  if (with_keys) fds.push_back({.fd = STDIN_FILENO, .events = POLLIN, .revents = 0});
  const Clock::time_point now = Clock::now();
  const Clock::duration left = std::clamp<Clock::duration>(
      std::min(watch.Wait(fds), now + kWaitMax) - now, Clock::duration::zero(), kWaitMax);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  ::poll(fds.data(), fds.size(), static_cast<int>(ms));
}

// Processes all pressed keys. Returns false if the operator quits.
bool TakeKeys(Terminal& terminal, View& view, Watch& watch) {
  while (const std::optional<KeyPress> press = terminal.ReadKey()) {
    const ViewAction action = view.On(*press);
    if (action.what == ViewAction::What::kQuit) return false;
    if (action.what == ViewAction::What::kAsk) watch.AskFor(action.question);
  }
  return !terminal.has_gone();
}

}  // namespace

int ShowTop(const std::string& socket, std::chrono::duration<double> every) {
  View view;
  Watch watch(socket, std::chrono::duration_cast<Clock::duration>(every), view);
  // Waits for the first figures before the screen is switched, so that a rejection stays readable.
  while (!watch.has_figures()) {
    watch.Go(Clock::now());
    if (!watch.first_failure().ok()) return Complain(socket, watch.first_failure());
    if (!watch.has_figures()) Await(watch, /*with_keys=*/false);
  }
  const Result<std::unique_ptr<Terminal>> terminal = Terminal::Open();
  if (!terminal.ok()) {
    std::fprintf(stderr, "gpusharedctl: %s\n", terminal.status().message().c_str());
    return kUsage;
  }
  const Scene scene = {.history = watch.history(), .every_s = every.count()};
  while (true) {
    (*terminal)->Show(Draw(view, scene, (*terminal)->size(), (*terminal)->charset()));
    Await(watch, /*with_keys=*/true);
    if (!TakeKeys(**terminal, view, watch)) return kDone;
    watch.Go(Clock::now());
  }
}

}  // namespace gpushared::server::top
