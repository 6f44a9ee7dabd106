// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_REPORT_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_REPORT_H_

#include <string>
#include <vector>

#include "tests/hostile/storms/experiment.h"

namespace gpushared::storms {

// The two lines above the table, one line of it, and the notes on one storm (or "").
std::string TableHead();
std::string TableRow(const StormOutcome& outcome);
std::string Remarks(const StormOutcome& outcome);

// The figures with goals, as the table of docs/results.md. Those that miss theirs are bold.
std::string MarkdownTable(const std::vector<StormOutcome>& outcomes);

// Returns true if the file was written.
bool WriteJson(const std::string& path, const std::vector<StormOutcome>& outcomes);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_REPORT_H_
