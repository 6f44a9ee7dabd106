# SPDX-License-Identifier: Apache-2.0
# Sets the compiler and linker options of all targets of this project.
function(gpushared_target_defaults target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow
    $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
    # Designated initialisers leave the other members at their defaults on purpose.
    -Wno-missing-field-initializers
    $<$<BOOL:${GPUSHARED_WERROR}>:-Werror>
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    # gcc's garbage collection is not worthwhile: without it, compilation takes 0 to 17 % less time, and the largest
    # file takes 850 MB instead of 720 MB.
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
  foreach(sanitizer IN LISTS GPUSHARED_SANITIZE)
    # gcc 12 calls members of <regex> and <variant> uninitialised once their checks are inlined.
    # With -O2 -g instead of -O1 -g1, option parsing alone takes minutes to compile.
    target_compile_options(${target} PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer -O1 -g1
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${sanitizer})
    if(sanitizer STREQUAL "undefined")
      # A finding must fail the test that made it.
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=undefined)
    endif()
    if(sanitizer STREQUAL "thread")
      # Disables Asio's fences around handlers, which tsan does not support and gcc rejects. Asio's queues are protected
      # by mutexes, which tsan supports. Set in all targets, because the fences are in inline code.
      target_compile_definitions(${target} PRIVATE BOOST_ASIO_DISABLE_FENCED_BLOCK)
    endif()
  endforeach()
  if(GPUSHARED_FUZZ)
    # Coverage of the code under test, not only of the fuzz targets, guides the fuzzer.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link,address,undefined
      -fno-sanitize-recover=undefined)
  endif()
  if(GPUSHARED_PORTABLE)
    # Removes unused code, because unused parts of libstdc++ need a newer C library.
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections -s)
  endif()
endfunction()
