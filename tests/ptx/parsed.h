// SPDX-License-Identifier: Apache-2.0
// Parsed texts of test cases.

#ifndef GPUSHARED_TESTS_PTX_PARSED_H_
#define GPUSHARED_TESTS_PTX_PARSED_H_

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Returns a module of these items, which begin in line 4.
inline Module Parsed(const std::string& items, const std::string& target = "sm_75") {
  Result<Module> module = Parse(".version 8.3\n.target " + target + "\n.address_size 64\n" + items);
  EXPECT_TRUE(module) << module.status().message() << "\n" << items;
  return module ? *std::move(module) : Module();
}

// Returns the printed text. Parsing it and printing it again must give the same text, because every
// pass parses and prints.
inline std::string PrintedTwice(const std::string& items) {
  const std::string printed = Print(Parsed(items, "sm_80"));
  const Result<Module> again = Parse(printed);
  EXPECT_TRUE(again) << again.status().message();
  EXPECT_EQ(again ? Print(*again) : "", printed);
  return printed;
}

// Analyses a kernel whose body begins in line 6.
inline Result<ControlFlow> Analyse(const std::string& body) {
  return AnalyseControlFlow(
      *Parsed(".entry k() {\n.reg .b32 %r<99>; .reg .pred %p<9>;\n" + body + "\n}\n")
           .FindFunction("k"));
}
inline ControlFlow GetFlow(const std::string& body) {
  Result<ControlFlow> flow = Analyse(body);
  EXPECT_TRUE(flow) << flow.status().message();
  return flow ? *std::move(flow) : ControlFlow();
}

}  // namespace gpushared::ptx

#endif  // GPUSHARED_TESTS_PTX_PARSED_H_
