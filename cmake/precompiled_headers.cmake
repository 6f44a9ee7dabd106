# SPDX-License-Identifier: Apache-2.0
# Headers of others that many files include, parsed once per kind of target. GPUSHARED_PRECOMPILE turns it on:
# where it and GPUSHARED_JOIN_SOURCES are off (release, lint), a file that forgot an include does not compile.
option(GPUSHARED_PRECOMPILE "Precompile headers of the standard library, Asio, spdlog, nlohmann-json and gtest" OFF)

set(GPUSHARED_STD_HEADERS <algorithm> <array> <atomic> <bit> <chrono> <compare> <concepts> <condition_variable>
  <cstddef> <cstdint> <cstdio> <cstring> <deque> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex>
  <numeric> <optional> <set> <span> <sstream> <string> <string_view> <system_error> <thread> <tuple> <type_traits>
  <unordered_map> <utility> <variant> <vector>)

# gpushared_precompiled(<name> [PROGRAMS] HEADERS <h> ... [LINK targets ...] [OPTIONS ...]): an object library that
# other targets take their precompiled headers from; PROGRAMS: those targets are executables. The compiler rejects
# them when it is called with other options than they were made with.
function(gpushared_precompiled name)
  cmake_parse_arguments(arg "PROGRAMS" "" "HEADERS;LINK;OPTIONS" ${ARGN})
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp" CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  gpushared_target_defaults(${name})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  if(arg_PROGRAMS)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIE)
  endif()
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  # Its one file is for CMake alone. As C++, gcc would instantiate in it what functions of the headers name: up to 3 s.
  set_source_files_properties("${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp" PROPERTIES COMPILE_OPTIONS "-x;assembler")
endfunction()

# What people and small requests wait for, not commands. Optimising it is a third of the work of compiling it.
option(GPUSHARED_OPTIMISE_SELDOM "Optimise what runs seldom, too: the broker, the control room, programs of operators" ON)
set(GPUSHARED_SELDOM $<$<NOT:$<BOOL:${GPUSHARED_OPTIMISE_SELDOM}>>:-O0>)

# gpushared_seldom(<target> <name>): the target's code runs seldom, and its files begin with the precompiled headers of
# this name, which are made for such code. Where a build lacks those, its files are compiled as all others are.
function(gpushared_seldom target name)
  if(NOT TARGET ${name})
    gpushared_use_precompiled(${target} gpushared_std_headers)
    return()
  endif()
  target_compile_options(${target} PRIVATE ${GPUSHARED_SELDOM})
  gpushared_use_precompiled(${target} ${name})
endfunction()

# gpushared_optimised_first(<target> libraries ...): links these libraries whole, before the program's own files. Of an
# inline function that several files have, the linker keeps the first copy that it meets. Otherwise that would be one of a
# file that is not optimised, and optimised code would call it: reading a module took twice as long.
function(gpushared_optimised_first target)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  list(JOIN files "," files)
  target_link_options(${target} BEFORE PRIVATE "LINKER:--whole-archive,${files},--no-whole-archive")
endfunction()

# gpushared_use_precompiled(<target> <name>): the target's files begin with those headers. A program is then compiled as
# a library's code is, unless the headers are those of PROGRAMS.
function(gpushared_use_precompiled target name)
  if(TARGET ${name})
    get_target_property(type ${target} TYPE)
    get_target_property(is_library ${name} POSITION_INDEPENDENT_CODE)
    if(type STREQUAL "EXECUTABLE" AND is_library)
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${name})
    # ccache keeps what was compiled with them only when the preprocessor names them. gcc 12 finds overflows in
    # inlined copies of strings that are not there, and hides them in system headers unless they are precompiled.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
endfunction()

# Asio's and the library's templates are then instantiated once per group: half the time from scratch, and more after
# a change. Files of a group share their unnamed namespaces; where a name means two things, one file stands alone.
option(GPUSHARED_JOIN_SOURCES "Compile files of the largest libraries in groups" OFF)

# gpushared_join_sources(<target> [GROUP n] [APART files ...]): groups of n files, eight unless said. A larger group
# takes a sixth to a quarter less for the same files; none should take over 20 s.
function(gpushared_join_sources target)
  cmake_parse_arguments(arg "" "GROUP" "APART" ${ARGN})
  if(NOT arg_GROUP)
    set(arg_GROUP 8)
  endif()
  if(GPUSHARED_JOIN_SOURCES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${arg_GROUP})
    set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# gpushared_unoptimised(<target>): its code is never worth optimising, in packages neither.
function(gpushared_unoptimised target)
  target_compile_options(${target} PRIVATE -O0)
  if(NOT GPUSHARED_OPTIMISE_SELDOM)  # Else those headers are made for code that is optimised.
    gpushared_use_precompiled(${target} gpushared_json_headers)
  endif()
endfunction()

# gpushared_run_once(<target> files ...): sources that run once in the life of a program, as what reads its options.
# Optimising them takes as long as compiling them, 5 s each; so they are objects of their own, unoptimised, over
# headers that are precompiled that way.
function(gpushared_run_once target)
  add_library(${target}_run_once OBJECT ${ARGN})
  target_link_libraries(${target}_run_once PRIVATE $<TARGET_PROPERTY:${target},LINK_LIBRARIES>)
  target_compile_definitions(${target}_run_once PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  gpushared_target_defaults(${target}_run_once)
  gpushared_unoptimised(${target}_run_once)
  gpushared_join_sources(${target}_run_once)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_run_once>)
endfunction()

if(GPUSHARED_PRECOMPILE)
  gpushared_precompiled(gpushared_std_headers HEADERS ${GPUSHARED_STD_HEADERS})
  gpushared_precompiled(gpushared_server_headers
    HEADERS ${GPUSHARED_STD_HEADERS} <boost/asio/io_context.hpp> <boost/asio/posix/stream_descriptor.hpp>
      <boost/asio/post.hpp> <boost/asio/steady_timer.hpp> <fmt/format.h> <nlohmann/json.hpp> <spdlog/spdlog.h>
      "${PROJECT_SOURCE_DIR}/cmake/format_once.h"
    LINK Boost::headers gpushared::logging nlohmann_json::nlohmann_json OPTIONS ${GPUSHARED_SELDOM})
  # They take 6 s, which only the many programs of a build with tests earn.
  if(GPUSHARED_BUILD_TESTS)
    gpushared_precompiled(gpushared_json_headers HEADERS ${GPUSHARED_STD_HEADERS} <nlohmann/json.hpp>
      LINK nlohmann_json::nlohmann_json OPTIONS ${GPUSHARED_SELDOM})
  endif()
endif()
