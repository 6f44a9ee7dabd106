// SPDX-License-Identifier: Apache-2.0
// Precompiled with the server's headers. libfmt holds the code that formats log lines. Without this
// declaration each file that writes one compiles it again, which takes a second.

#ifndef GPUSHARED_CMAKE_FORMAT_ONCE_H_
#define GPUSHARED_CMAKE_FORMAT_ONCE_H_

#include <fmt/format.h>

#if !defined(FMT_HEADER_ONLY) && FMT_VERSION >= 90000 && FMT_VERSION < 100000
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>& buffer,
                                                   fmt::string_view format, fmt::format_args args,
                                                   fmt::detail::locale_ref locale);
#endif

#endif  // GPUSHARED_CMAKE_FORMAT_ONCE_H_
