// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/picture.h"

#include <algorithm>
#include <cstddef>

namespace gpushared::mig {
namespace {

constexpr std::size_t kCellLeast = 3;

std::string Padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string Label(const Board& board, const Drawn& drawn) {
  const std::string name = KindName(board, drawn.instance.profile, drawn.instance.compute);
  return drawn.mark == ' ' ? name : name + " " + drawn.mark;
}

std::size_t GetSlices(const Board& board, const Drawn& drawn) {
  const Profile* const profile = board.Find(drawn.instance.profile);
  return profile == nullptr ? 1 : profile->memory_slices;
}

}  // namespace

std::string Picture(const Board& board, const std::vector<PictureRow>& rows) {
  const std::string heading = "memory slice";
  std::size_t margin = heading.size(), cell = kCellLeast;
  for (const PictureRow& row : rows) {
    margin = std::max(margin, row.label.size());
    for (const Drawn& drawn : row.drawn) {
      const std::size_t slices = GetSlices(board, drawn);
      cell = std::max(cell, (Label(board, drawn).size() + slices) / slices - 1);
    }
  }
  std::string text = Padded(heading, margin) + "  ";
  for (std::size_t slice = 0; slice < board.slices; ++slice) {
    text += Padded(std::to_string(slice), cell + 1);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  for (const PictureRow& row : rows) {
    text += Padded(row.label, margin) + " |";
    for (std::size_t slice = 0; slice < board.slices;) {
      const auto drawn = std::ranges::find_if(
          row.drawn, [&](const Drawn& one) { return one.instance.start == slice; });
      const std::size_t slices = drawn == row.drawn.end() ? 1 : GetSlices(board, *drawn);
      const std::string label = drawn == row.drawn.end() ? "" : Label(board, *drawn);
      text += Padded(label, slices * (cell + 1) - 1) + "|";
      slice += slices;
    }
    text += "\n";
  }
  return text;
}

}  // namespace gpushared::mig
