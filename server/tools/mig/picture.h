// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_MIG_PICTURE_H_
#define GPUSHARED_SERVER_TOOLS_MIG_PICTURE_H_

#include <string>
#include <vector>

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// An instance and the mark after its name.
struct Drawn {
  Instance instance;
  char mark = ' ';
};
struct PictureRow {
  std::string label;
  std::vector<Drawn> drawn;
};

// Draws a board's memory slices from left to right, one text line per row.
std::string Picture(const Board& board, const std::vector<PictureRow>& rows);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_PICTURE_H_
