// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_STREAMING_COPY_H_
#define GPUSHARED_CLIENT_LIB_STREAMING_COPY_H_

#include <cstddef>

namespace gpushared::client {

// Copies like memcpy, with stores that bypass the caches. Ordinary stores read `to` first, which
// costs a third of the memory bandwidth. Meant only for copies that exceed the caches; the next
// reader of a smaller copy would have to wait for memory. Calls memcpy on processors other than
// x86-64.
//
// Other threads observe the stores in the same order as those of memcpy. Thread-safe.
void StreamingCopy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_STREAMING_COPY_H_
