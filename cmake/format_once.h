// SPDX-License-Identifier: Apache-2.0
// This header is precompiled with the server's headers. libfmt contains the code that formats log
// lines. Without the declaration below, each file that writes log lines compiles this code again,
// which takes a second.

#ifndef GPUSHARED_CMAKE_FORMAT_ONCE_H_
#define GPUSHARED_CMAKE_FORMAT_ONCE_H_

#include <fmt/format.h>

#if !defined(FMT_HEADER_ONLY) && FMT_VERSION >= 90000 && FMT_VERSION < 100000
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>& buffer,
                                                   fmt::string_view format, fmt::format_args args,
                                                   fmt::detail::locale_ref locale);
#endif

#endif  // GPUSHARED_CMAKE_FORMAT_ONCE_H_
