// SPDX-License-Identifier: Apache-2.0
// Differences between two samples of a server, as rates.

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

// Part of the time in which a device worked, by class: 0.5 is half of it.
using Busy = std::array<Figure, kClassNames.size()>;
Figure Sum(const Busy& busy);

struct DeviceFigures {
  DeviceSample now;
  Busy busy;
  Figure gap_used;    // Part of the gap that was used; empty without a gap.
  Figure host_steal;  // Part of the time in which the machine kept it from its work.
  Figure launches_per_s, stops_per_s;
};

struct ClientFigures {
  // How fast a number grew; the part of the time, of device time: above 1 where commands run beside
  // each other.
  const Figure& PerSecond(ClientKey key) const { return per_s[key.index]; }

  ClientSample now;
  ClientNumbers per_s;
  Figure waits;                // Part of the time with commands ready and none on the device.
  Figure met;                  // Part of its requests since it came; empty without a promise.
  bool missed_target = false;  // Between the two samples.
};

struct Figures {
  ServerSample server;
  std::vector<DeviceFigures> devices;
  std::vector<ClientFigures> clients;
};

// `before` may be null, or of another server: a figure that fell, or that is new, has no rate.
Figures Between(const Sample* before, const Sample& now);

// How busy devices were in the last moments, the newest at the end.
//
// Thread-compatible.
class History {
 public:
  static constexpr std::size_t kMomentsMax = 512;  // More than a terminal has columns.

  // Devices that are not among the figures are forgotten.
  void Add(const Figures& figures);
  // Nobody said anything: a hole in the strip of each device.
  void AddHole();
  // Empty for a device that is not known.
  const std::deque<Busy>& Of(const std::string& device) const;

 private:
  std::map<std::string, std::deque<Busy>> moments_;
};

// What is drawn.
struct Scene {
  const History& history;
  double every_s = 1;  // A moment of the history takes so long.
};

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_FIGURES_H_
