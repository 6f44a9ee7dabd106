// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_REPORT_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_REPORT_H_

#include <string>
#include <vector>

#include "tests/hostile/storms/experiment.h"

namespace gpushared::storms {

// Texts for the printed table: its two header lines, the line of one storm, and the notes on one
// storm, which may be empty.
std::string TableHead();
std::string TableRow(const StormOutcome& outcome);
std::string Remarks(const StormOutcome& outcome);

// Returns the figures that have goals as the table of docs/results.md. Figures that miss their
// goals are bold.
std::string MarkdownTable(const std::vector<StormOutcome>& outcomes);

// Returns true if the file was written.
bool WriteJson(const std::string& path, const std::vector<StormOutcome>& outcomes);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_REPORT_H_
