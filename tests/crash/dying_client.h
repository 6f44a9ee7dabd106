// SPDX-License-Identifier: Apache-2.0
// A client that performs the protocol and kills itself at one step.

#ifndef GPUSHARED_TESTS_CRASH_DYING_CLIENT_H_
#define GPUSHARED_TESTS_CRASH_DYING_CLIENT_H_

#include <array>
#include <string_view>

namespace gpushared::testing {

// Every point of the protocol at which a client can die, in the order it reaches them.
inline constexpr std::array kDeathSteps = std::to_array<std::string_view>({
    "connected",
    "hello half sent",
    "hello sent",
    "welcomed",
    "image header half sent",
    "image written",
    "module sent",
    "module loaded",
    "memory asked for",
    "memory mapped",
    "staging buffer asked for",
    "staging buffer mapped",
    "record written without its tag",
    "record published without the doorbell",
    "doorbell rung",
    "copy in flight",
    "graph half made",
    "graph in flight",
    "graph changed and destroyed in flight",
    "command ring full",
    "completions unread",
    "asleep on the futex",
    "socket half closed",
    "socket held by a forked child",
});
// From here on, one of the client's kernels can be running when it dies.
inline constexpr std::size_t kFirstStepWithKernels = 10;

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CRASH_DYING_CLIENT_H_
