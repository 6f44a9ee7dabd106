// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_PAGE_FILES_H_
#define GPUSHARED_SERVER_TOOLS_WEB_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace gpushared::web {

// A file of page/, as it was when this program was compiled.
struct PageFile {
  std::string_view name;  // "style.css".
  std::string_view text;
};
// All of them. embed_files.cmake writes it.
std::span<const PageFile> PageFiles();
// The one of that name; nullptr where there is none.
const PageFile* FindPageFile(std::string_view name);
// By the name's ending.
std::string_view PageFileType(const PageFile& file);

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_PAGE_FILES_H_
