// SPDX-License-Identifier: Apache-2.0
// Lists the forms of the executor that no kernel of this directory's tests has run, because only an
// executed form is tested.
//
// Usage: executor_reach FILE ...: the forms that each test program has run, as it wrote them when
// GPUSHARED_FORMS_RUN named the file.
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "server/device/cpu/executor/op_table.h"

int main(int argc, char** argv) {
  std::set<std::string> run;
  for (int i = 1; i < argc; ++i) {
    std::ifstream forms(argv[i]);
    if (!forms) {
      std::printf("no %s: its test program has not run\n", argv[i]);
      return 1;
    }
    for (std::string form; std::getline(forms, form);) run.insert(form);
  }
  // Both flavours are compiled from the same source and run by the same tests, so only the one with
  // more forms is checked.
  std::set<std::string> known, missing;
  using namespace gpushared::device::executor;
  std::uint64_t number = 0;
  while (const OpEntry* const op = OpOfNumber(BestFlavour(), number++)) {
    known.emplace(op->key);
    if (!run.contains(std::string(op->key))) missing.emplace(op->key);
  }
  std::printf("%zu of %zu forms are in a kernel that a test runs\n", known.size() - missing.size(),
              known.size());
  for (const std::string& form : missing) std::printf("in none: %s\n", form.c_str());
  return missing.empty() ? 0 : 1;
}
