// SPDX-License-Identifier: Apache-2.0
// Short texts for figures, with their unit. An absent figure is "-".

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_UNITS_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_UNITS_H_

#include <string>

#include "server/tools/ctl/top/sample.h"

namespace gpushared::server::top {

std::string PercentText(const Figure& part);   // Formats 0.5 as "50.0"; the unit is in the heading.
std::string CountText(const Figure& count);    // Formats a count such as "7", "0.3" or "1.2k".
std::string WholeText(const Figure& number);   // Formats digits only, for identifiers and weights.
std::string BytesText(const Figure& bytes);    // Formats a size such as "1.5 GiB" or "1023 MiB".
std::string EnergyText(const Figure& joules);  // Formats an energy such as "812 J" or "1.2 kJ".
// Formats a time such as "950 us", "14.0 ms" or "2.50 s".
std::string MicrosecondsText(const Figure& us);
// Formats an age such as "59 s", "2 min", "3 h 5 min" or "4 d 3 h".
std::string AgeText(const Figure& seconds);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_UNITS_H_
