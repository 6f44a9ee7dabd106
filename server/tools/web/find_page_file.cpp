// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "server/tools/web/page_files.h"

namespace gpushared::web {

const PageFile* FindPageFile(std::string_view name) {
  const auto found = std::ranges::find(PageFiles(), name, &PageFile::name);
  return found == PageFiles().end() ? nullptr : &*found;
}

std::string_view PageFileType(const PageFile& file) {
  if (file.name.ends_with(".html")) return "text/html; charset=utf-8";
  if (file.name.ends_with(".css")) return "text/css; charset=utf-8";
  if (file.name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace gpushared::web
