// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_STREAMING_COPY_H_
#define GPUSHARED_CLIENT_LIB_STREAMING_COPY_H_

#include <cstddef>

namespace gpushared::client {

// memcpy with stores that bypass the caches: `to` is not read first, as it is by ordinary stores,
// which costs a third of the memory's bandwidth. For memory that is larger than what the caches
// would keep of it; otherwise whoever reads it next waits for it. On processors other than x86-64
// it is memcpy.
//
// What it has written is visible to other threads as memcpy's would be. Thread-safe.
void StreamingCopy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_STREAMING_COPY_H_
