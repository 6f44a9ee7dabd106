# SPDX-License-Identifier: Apache-2.0
# Precompiles third-party headers that many files include, once per kind of target, if GPUSHARED_PRECOMPILE is on. In
# builds without this option and GPUSHARED_JOIN_SOURCES (release, lint), a file with a missing include does not compile.
option(GPUSHARED_PRECOMPILE "Precompile headers of the standard library, Asio, spdlog, nlohmann-json and gtest" OFF)

set(GPUSHARED_STD_HEADERS <algorithm> <array> <atomic> <bit> <chrono> <compare> <concepts> <condition_variable>
  <cstddef> <cstdint> <cstdio> <cstring> <deque> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex>
  <numeric> <optional> <set> <span> <sstream> <string> <string_view> <system_error> <thread> <tuple> <type_traits>
  <unordered_map> <utility> <variant> <vector>)

# gpushared_precompiled(<name> [PROGRAMS] HEADERS <h> ... [LINK targets ...] [OPTIONS ...]): adds an object library
# whose precompiled headers other targets use; with PROGRAMS, these targets are executables. The compiler rejects
# precompiled headers that were compiled with other options.
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
  # CMake requires a source file. As C++, it would take up to 3 s, because gcc would instantiate the templates that the
  # headers use.
  set_source_files_properties("${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp" PROPERTIES COMPILE_OPTIONS "-x;assembler")
endfunction()

# Code that runs seldom serves operators and single requests, not commands. Its optimisation takes a third of its
# compilation time.
option(GPUSHARED_OPTIMISE_SELDOM "Optimise what runs seldom, too: the broker, the control room, programs of operators" ON)
set(GPUSHARED_SELDOM $<$<NOT:$<BOOL:${GPUSHARED_OPTIMISE_SELDOM}>>:-O0>)

# gpushared_seldom(<target> <name>): declares that the target's code runs seldom. Its files use the precompiled headers
# <name>, which are compiled with the options for such code. In a build without these headers, the files are compiled
# like those of other targets.
function(gpushared_seldom target name)
  if(NOT TARGET ${name})
    gpushared_use_precompiled(${target} gpushared_std_headers)
    return()
  endif()
  target_compile_options(${target} PRIVATE ${GPUSHARED_SELDOM})
  gpushared_use_precompiled(${target} ${name})
endfunction()

# gpushared_optimised_first(<target> libraries ...): links all objects of these libraries before the program's own
# files. The linker keeps the first copy of an inline function. If a file that is not optimised came first, optimised
# code would call its slow copies; reading a module then takes twice as long.
function(gpushared_optimised_first target)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  list(JOIN files "," files)
  target_link_options(${target} BEFORE PRIVATE "LINKER:--whole-archive,${files},--no-whole-archive")
endfunction()

# gpushared_use_precompiled(<target> <name>): the target's files use the precompiled headers <name>. A program is then
# compiled with the options of a library, unless the headers were made with PROGRAMS.
function(gpushared_use_precompiled target name)
  if(TARGET ${name})
    get_target_property(type ${target} TYPE)
    get_target_property(is_library ${name} POSITION_INDEPENDENT_CODE)
    if(type STREQUAL "EXECUTABLE" AND is_library)
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${name})
    # ccache caches objects with precompiled headers only if the preprocessed text names the headers. gcc 12 reports
    # false overflows in inlined copies of strings, and suppresses these warnings in system headers only if the headers
    # are not precompiled.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
endfunction()

# With groups, templates are instantiated once per group. A full build takes half the time, and a build after a change
# takes longer. Files of a group share their unnamed namespaces; if a name has two meanings, one file is compiled alone.
option(GPUSHARED_JOIN_SOURCES "Compile files of the largest libraries in groups" OFF)

# gpushared_join_sources(<target> [GROUP n] [APART files ...]): compiles groups of n files (default 8), and the files of
# APART alone. Larger groups take 17 to 25 % less time for the same files; a group should take at most 20 s.
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

# gpushared_unoptimised(<target>): the target's code is never optimised, not even in packages.
function(gpushared_unoptimised target)
  target_compile_options(${target} PRIVATE -O0)
  if(NOT GPUSHARED_OPTIMISE_SELDOM)  # With the option, the headers are compiled for optimised code.
    gpushared_use_precompiled(${target} gpushared_json_headers)
  endif()
endfunction()

# gpushared_run_once(<target> files ...): adds sources whose code runs once per process, such as option parsing. Their
# optimisation would double their compilation time of 5 s each. Therefore they form a separate object library without
# optimisation, with headers that are precompiled without optimisation.
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
  # These headers take 6 s to compile, which is worthwhile only for the many programs of a build with tests.
  if(GPUSHARED_BUILD_TESTS)
    gpushared_precompiled(gpushared_json_headers HEADERS ${GPUSHARED_STD_HEADERS} <nlohmann/json.hpp>
      LINK nlohmann_json::nlohmann_json OPTIONS ${GPUSHARED_SELDOM})
  endif()
endif()
