// SPDX-License-Identifier: Apache-2.0
// Rates computed from two samples of a server.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_FIGURES_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_FIGURES_H_

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "server/tools/ctl/top/sample.h"

namespace gpushared::server::top {

// Fraction of the time in which a device was busy, by class.
using Busy = std::array<Figure, kClassNames.size()>;
Figure Sum(const Busy& busy);

struct DeviceFigures {
  DeviceSample now;
  Busy busy;
  // Fraction of the gap (time in which no high-class client had work) that was used; empty without
  // a gap.
  Figure gap_used;
  Figure host_steal;  // Fraction of the time in which the host kept the device from running.
  Figure launches_per_s, stops_per_s;
};

struct ClientFigures {
  // Returns the growth per second; for device time that is a fraction of the time, above 1 if
  // commands run concurrently.
  const Figure& PerSecond(ClientKey key) const { return per_s[key.index]; }

  ClientSample now;
  ClientNumbers per_s;
  // Part of the device's power, in proportion to the client's part of the device time, as the
  // server divides energy. Unlike the rate of energy_j, this figure does not jump when the server
  // reads the device's counter, once a second. Empty if the device reports no power.
  Figure watts;
  // Fraction of the time in which the client had commands ready but none on the device.
  Figure waits;
  // Fraction of its requests so far that met the latency target; empty without a target.
  Figure met;
  bool missed_target = false;  // Whether a target was missed between the two samples.
};

struct Figures {
  // Returns whether any device reports power or energy.
  bool HasEnergy() const;

  ServerSample server;
  std::vector<DeviceFigures> devices;
  std::vector<ClientFigures> clients;
};

// Computes the figures of `now`. `before` may be null or come from another server: a figure that
// fell or that is new has no rate.
Figures Between(const Sample* before, const Sample& now);

// Recent activity of devices, the newest sample last.
//
// Thread-compatible.
class History {
 public:
  // Limit of samples; more than any terminal has columns.
  static constexpr std::size_t kMomentsMax = 512;

  // Drops devices that are not among the figures.
  void Add(const Figures& figures);
  // Adds a gap to each device's strip, for a time at which the server did not answer.
  void AddHole();
  // Returns the activity of a device, or an empty list for an unknown device.
  const std::deque<Busy>& Of(const std::string& device) const;

 private:
  std::map<std::string, std::deque<Busy>> moments_;
};

// Input of drawing besides the view.
struct Scene {
  const History& history;
  double every_s = 1;  // Duration of one sample of the history.
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_FIGURES_H_
