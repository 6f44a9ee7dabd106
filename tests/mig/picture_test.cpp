// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/picture.h"

#include <gtest/gtest.h>

#include "server/tools/mig/boards.h"

namespace gpushared::mig {
namespace {

TEST(MigPicture, ShowsEveryInstanceOverItsSlices) {
  const Board board = FindKnownBoard("A100-40")->board;
  EXPECT_EQ(Picture(board, {{"before", {{{14, 0, {2}}, '='}, {{19, 4, {1}}, '-'}}},
                            {"after", {{{14, 0, {2}}, '='}, {{9, 4, {1, 1, 1}}, '+'}}},
                            {"full", {{{0, 0, {7}}}}}}),
            R"(memory slice  0        1        2        3        4        5        6        7
before       |2g.10gb =        |        |        |1g.5gb -|        |        |        |
after        |2g.10gb =        |        |        |1c+1c+1c.3g.20gb +                 |
full         |7g.40gb                                                                |
)");
}

TEST(MigPicture, SmallBoardsHaveFewSlices) {
  EXPECT_EQ(Picture(FindKnownBoard("A30")->board, {{"now", {}}}),
            "memory slice  0   1   2   3\nnow          |   |   |   |   |\n");
}

}  // namespace
}  // namespace gpushared::mig
