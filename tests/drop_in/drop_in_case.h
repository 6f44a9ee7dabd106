// SPDX-License-Identifier: Apache-2.0
// Calls the drop-in's handlers in the test's own process, on a server that executes nothing.

#ifndef GPUSHARED_TESTS_DROP_IN_DROP_IN_CASE_H_
#define GPUSHARED_TESTS_DROP_IN_DROP_IN_CASE_H_

#include <cstdlib>

#include <gtest/gtest.h>

#include "client_lib/drop_in/calls.h"
#include "tests/support/fake_worker.h"

namespace gpushared::drop_in {

// Fixture with one current context. The drop-in's state lives as long as the process, so each case
// has its own server, to which the context's session connects.
class DropInCase : public ::testing::Test {
 protected:
  DropInCase() {
    ::setenv("GPUSHARED_SOCKET", worker_.socket_path().c_str(), 1);
    EXPECT_EQ(Init(0), Code::kSuccess);
    EXPECT_EQ(CtxCreate(&context_, 0, 0), Code::kSuccess);
    EXPECT_EQ(ModuleLoadData(&module_, "any PTX"), Code::kSuccess);
    EXPECT_EQ(ModuleGetFunction(&nothing_, module_, "nothing"), Code::kSuccess);
  }
  ~DropInCase() override {
    static_cast<void>(CtxDestroy(context_));
    EXPECT_TRUE(worker_.violations().empty()) << worker_.violations().front();
  }

  static StreamHandle NewStream(unsigned flags = device::cuda::kStreamNonBlocking) {
    StreamHandle stream = nullptr;
    EXPECT_EQ(StreamCreate(&stream, flags), Code::kSuccess);
    return stream;
  }
  Code LaunchOn(StreamHandle stream) {
    return LaunchKernel(nothing_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }

  testing::FakeWorker worker_;
  ContextHandle context_ = nullptr;
  ModuleHandle module_ = nullptr;
  FunctionHandle nothing_ = nullptr;
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_TESTS_DROP_IN_DROP_IN_CASE_H_
