// SPDX-License-Identifier: Apache-2.0
// A ptxas for the fake driver, which accepts text as code: copies its input to its output, marked
// as compiled. Like ptxas 13.0 it writes a temporary file for a text without kernels.
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/fake_cuda/fake_cuda.h"

int main(int count, char** arguments) {
  const char* output = nullptr;
  const char* input = nullptr;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--version") == 0) {
      std::puts("plain ptxas of the tests, release 1");
      return 0;
    }
    if (std::strcmp(arguments[i], "--output-file") == 0 && i + 1 < count) {
      output = arguments[++i];
    } else if (arguments[i][0] != '-') {
      input = arguments[i];
    }
  }
  if (output == nullptr || input == nullptr) return 2;
  std::FILE* const from = std::fopen(input, "rb");
  std::FILE* const to = std::fopen(output, "wb");
  if (from == nullptr || to == nullptr) return 3;
  std::string text = FAKE_CUDA_CODE;
  char bytes[4096];
  for (std::size_t got; (got = std::fread(bytes, 1, sizeof bytes, from)) > 0;) {
    text.append(bytes, got);
  }
  if (text.find(".entry") == std::string::npos) {
    std::FILE* const temporary = std::fopen("/tmp/plain_ptxas", "wb");
    if (temporary == nullptr) {
      std::fputs("fatal   : Could not open output file '/tmp/plain_ptxas'\n", stderr);
      return 255;
    }
    std::fclose(temporary);
    std::remove("/tmp/plain_ptxas");
  }
  // The driver reads text up to a zero byte.
  if (std::fwrite(text.c_str(), 1, text.size() + 1, to) != text.size() + 1) return 4;
  return std::fclose(to) == 0 ? 0 : 4;
}
