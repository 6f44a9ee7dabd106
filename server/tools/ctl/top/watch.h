// SPDX-License-Identifier: Apache-2.0
// Asks a server again and again, and what keys want to know, without ever waiting for it.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_WATCH_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_WATCH_H_

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "ipc/wire/control.h"
#include "server/telemetry/admin/ask.h"
#include "server/tools/ctl/top/figures.h"
#include "server/tools/ctl/top/view.h"

namespace gpushared::server::top {

// Keeps a view's figures fresh. Owns the connections to the server, two at most: one asks for
// figures, one for what a key wanted.
//
// Thread-compatible.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  Watch(std::string socket, Clock::duration every, View& view)
      : socket_(std::move(socket)), every_(every), view_(view) {}

  // Why there are no figures at all, if the first question failed.
  const Status& first_failure() const { return first_failure_; }
  bool has_figures() const { return before_.has_value(); }
  const History& history() const { return history_; }

  // Asks on behalf of a key, after what another key asked for.
  void AskFor(const ipc::Admin& question);
  // Does what is due and takes what has come. Whether there is something new to show.
  bool Go(Clock::time_point now);
  // Adds what to wait for, and says until when.
  Clock::time_point Wait(std::vector<pollfd>& fds) const;

 private:
  // One question under way.
  struct Asked {
    admin::Inquiry inquiry;
    ipc::Admin question;
    Clock::time_point overdue;
  };

  bool Due(Clock::time_point now) const;
  std::optional<Asked> Begin(const ipc::Admin& question, Clock::time_point now, Status& why);
  bool GoFigures(Clock::time_point now);
  bool GoKeys(Clock::time_point now);
  void TakeFigures(const nlohmann::json& answer, Clock::time_point now);
  void Lose(const Status& why, Clock::time_point now);
  void ShowLost(Clock::time_point now);
  void SayDone(const ipc::Admin& question, const nlohmann::json& answer);

  const std::string socket_;
  const Clock::duration every_;
  View& view_;
  Clock::time_point next_{};  // When figures are asked for again.
  std::optional<Asked> figures_, key_;
  std::vector<ipc::Admin> keys_waiting_;
  std::optional<Sample> before_;
  Sample now_;
  History history_;
  Status first_failure_;
  std::optional<Clock::time_point> lost_since_;
  std::string lost_why_;
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_WATCH_H_
