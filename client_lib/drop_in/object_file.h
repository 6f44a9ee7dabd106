// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_OBJECT_FILE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_OBJECT_FILE_H_

#include <string_view>
#include <vector>

namespace gpushared::drop_in {

// Returns the fatbins in a host object file, as nvcc -dc writes them: one for each source. They
// point into `object`. Empty if it is not a valid x86-64 object file or contains none.
std::vector<std::string_view> GetFatbins(std::string_view object);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_OBJECT_FILE_H_
