# SPDX-License-Identifier: Apache-2.0
# Writes C++ with the texts of files. Usage: cmake -DOUTPUT=page_files.cpp -DDIRECTORY=page -DNAMES="a.js,b.css" -P embed_files.cmake
string(REPLACE "," ";" names "${NAMES}")
set(text "// Written by embed_files.cmake.\n#include \"server/tools/web/page_files.h\"\n\nnamespace gpushared::web {\nnamespace {\n\nconstexpr PageFile kFiles[] = {\n")
foreach(name IN LISTS names)
  file(READ "${DIRECTORY}/${name}" content)
  if(content MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${name} contains )embedded\", which ends a raw string of C++")
  endif()
  string(APPEND text "    {\"${name}\", R\"embedded(${content})embedded\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::span<const PageFile> PageFiles() { return kFiles; }\n\n}  // namespace gpushared::web\n")
file(WRITE "${OUTPUT}" "${text}")
