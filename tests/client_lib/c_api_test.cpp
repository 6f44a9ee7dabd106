// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"
#include "gpushared/gpushared.h"

#include "tests/support/fake_worker.h"

namespace gpushared {
namespace {

using testing::FakeWorker;
using ::testing::HasSubstr;

class CApiTest : public ::testing::Test {
 protected:
  CApiTest() {
    gpushared_client_options options;
    gpushared_client_options_init(&options);
    options.socket = worker_.socket_path().c_str();
    options.name = "c";
    EXPECT_EQ(gpushared_connect(&options, &client_), GPUSHARED_OK)
        << gpushared_last_error_message();
    stream_ = gpushared_default_stream(client_);
  }
  ~CApiTest() override { gpushared_destroy_client(client_); }

  FakeWorker worker_;
  gpushared_client* client_ = nullptr;
  gpushared_stream* stream_ = nullptr;
};

TEST_F(CApiTest, StatusNumbersEqualCxxCodes) {
  for (int number = 0; number <= GPUSHARED_INTERNAL; ++number) {
    EXPECT_EQ(gpushared_status_name(static_cast<gpushared_status_t>(number)),
              StatusCodeName(static_cast<StatusCode>(number)));
  }
  EXPECT_STREQ(gpushared_status_name(GPUSHARED_OUT_OF_MEMORY), "OutOfMemory");
  EXPECT_STREQ(gpushared_version(), GPUSHARED_VERSION_STRING);
}

TEST_F(CApiTest, RunsProgramFromLoadToResult) {
  gpushared_module* module = nullptr;
  gpushared_kernel* kernel = nullptr;
  ASSERT_EQ(gpushared_load_module(client_, "ptx", 3, &module), GPUSHARED_OK);
  size_t kernels = 0;
  ASSERT_EQ(gpushared_get_kernel_count(module, &kernels), GPUSHARED_OK);
  EXPECT_EQ(kernels, FakeWorker::Kernels().size());
  ASSERT_EQ(gpushared_get_kernel(module, "add", &kernel), GPUSHARED_OK);
  gpushared_kernel_info info;
  ASSERT_EQ(gpushared_get_kernel_info(kernel, &info), GPUSHARED_OK);
  EXPECT_STREQ(info.name, "add");
  ASSERT_EQ(info.parameter_count, 4u);
  EXPECT_EQ(info.parameters[3].bytes, 4u);
  EXPECT_STREQ(info.unsupported, "");
  gpushared_kernel_attributes attributes;
  ASSERT_EQ(gpushared_get_kernel_attributes(kernel, &attributes), GPUSHARED_OK);
  EXPECT_EQ(attributes.registers, 24u);
  EXPECT_EQ(attributes.binary_version, 80u);
  gpushared_variable variable;
  ASSERT_EQ(gpushared_get_variable(module, "table", &variable), GPUSHARED_OK);
  EXPECT_STREQ(variable.name, "table");
  EXPECT_EQ(variable.address, FakeWorker::kVariables + 128);
  EXPECT_EQ(variable.bytes, 64u);
  EXPECT_EQ(variable.is_constant, 1u);
  EXPECT_EQ(gpushared_get_variable(module, "nothing", &variable), GPUSHARED_NOT_FOUND);
  EXPECT_EQ(gpushared_get_variable(module, nullptr, &variable), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_get_stream_fault(stream_), GPUSHARED_FAULT_NONE);
  EXPECT_EQ(gpushared_get_client_fault(client_), GPUSHARED_FAULT_NONE);

  gpushared_address address = 0;
  ASSERT_EQ(gpushared_allocate_device(client_, 1000, &address), GPUSHARED_OK);
  char sent[1000], received[1000] = {};
  std::memset(sent, 'x', sizeof sent);
  ASSERT_EQ(gpushared_copy_to_device(stream_, address, sent, sizeof sent), GPUSHARED_OK);
  const int number = 7;
  const void* arguments[] = {&address, &address, &address, &number};
  const gpushared_launch_shape shape = {
      .grid = {1, 1, 1}, .block = {32, 1, 1}, .dynamic_shared_bytes = 0};
  ASSERT_EQ(gpushared_launch(stream_, kernel, &shape, arguments, 4), GPUSHARED_OK);
  ASSERT_EQ(gpushared_copy_to_host(stream_, received, address, sizeof received), GPUSHARED_OK);
  EXPECT_EQ(std::memcmp(sent, received, sizeof sent), 0);
  EXPECT_EQ(gpushared_synchronize_stream(stream_), GPUSHARED_OK);
  EXPECT_EQ(gpushared_free_device(client_, address), GPUSHARED_OK);

  const auto taken = worker_.taken();
  ASSERT_EQ(taken.size(), 3u);
  int arrived = 0;
  std::memcpy(&arrived, taken[1].parameters.data() + 24, sizeof arrived);
  EXPECT_EQ(arrived, 7);
  gpushared_destroy_kernel(kernel);
  gpushared_destroy_module(module);
}

TEST_F(CApiTest, FillsCopiesAndHostMemory) {
  gpushared_address address = 0;
  void* host = nullptr;
  ASSERT_EQ(gpushared_allocate_device(client_, 256, &address), GPUSHARED_OK);
  ASSERT_EQ(gpushared_allocate_host(client_, 256, &host), GPUSHARED_OK);
  const gpushared_fill_shape fill = {.width_elements = 4, .height = 2, .pitch_bytes = 64};
  ASSERT_EQ(gpushared_fill(stream_, address, 0, 1, 256), GPUSHARED_OK);
  ASSERT_EQ(gpushared_fill_2d(stream_, address, 0x01010101, 4, &fill), GPUSHARED_OK);
  ASSERT_EQ(gpushared_copy_on_device(stream_, address + 128, address, 128), GPUSHARED_OK);
  const gpushared_copy_shape copy = {
      .width_bytes = 16, .height = 4, .destination_pitch_bytes = 16, .source_pitch_bytes = 64};
  ASSERT_EQ(gpushared_copy_to_host_2d(stream_, host, address, &copy), GPUSHARED_OK);
  ASSERT_EQ(gpushared_synchronize(client_), GPUSHARED_OK);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(static_cast<char*>(host)[i], 1) << i;
  const gpushared_copy_shape back = {
      .width_bytes = 16, .height = 2, .destination_pitch_bytes = 64, .source_pitch_bytes = 16};
  EXPECT_EQ(gpushared_copy_to_device_2d(stream_, address, host, &back), GPUSHARED_OK);
  EXPECT_EQ(gpushared_copy_on_device_2d(stream_, address, address + 128, &back), GPUSHARED_OK);
  EXPECT_EQ(gpushared_free_host(client_, host), GPUSHARED_OK);
  EXPECT_EQ(gpushared_free_host(client_, host), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_free_device(client_, address + 1), GPUSHARED_INVALID_ARGUMENT);
}

TEST_F(CApiTest, StreamsAndEventsWithTime) {
  gpushared_stream* other = nullptr;
  gpushared_event *start = nullptr, *end = nullptr;
  ASSERT_EQ(gpushared_create_stream(client_, &other), GPUSHARED_OK);
  ASSERT_EQ(gpushared_create_event(client_, 1, &start), GPUSHARED_OK);
  ASSERT_EQ(gpushared_create_event(client_, 1, &end), GPUSHARED_OK);
  ASSERT_EQ(gpushared_record_event(other, start), GPUSHARED_OK);
  ASSERT_EQ(gpushared_record_event(other, end), GPUSHARED_OK);
  ASSERT_EQ(gpushared_wait_event(stream_, end), GPUSHARED_OK);
  ASSERT_EQ(gpushared_synchronize_event(end), GPUSHARED_OK);
  EXPECT_EQ(gpushared_query_event(end), GPUSHARED_OK);
  int64_t elapsed_ns = 0;
  ASSERT_EQ(gpushared_get_elapsed_time(start, end, &elapsed_ns), GPUSHARED_OK);
  EXPECT_EQ(elapsed_ns, 1000);
  EXPECT_EQ(gpushared_query_stream(other), GPUSHARED_OK);
  gpushared_destroy_event(start);
  gpushared_destroy_event(end);
  gpushared_destroy_stream(other);
}

TEST_F(CApiTest, RequestsAreMarked) {
  EXPECT_EQ(gpushared_end_request(stream_), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_begin_request(stream_, UINT64_MAX), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_begin_request(stream_, 1000), GPUSHARED_OK);
  EXPECT_EQ(gpushared_end_request(stream_), GPUSHARED_OK);
  EXPECT_EQ(gpushared_expect_request_in(client_, 5000), GPUSHARED_OK);
  EXPECT_EQ(gpushared_expect_request_in(client_, 3'600'000'000'001), GPUSHARED_INVALID_ARGUMENT);
  ASSERT_EQ(gpushared_synchronize(client_), GPUSHARED_OK);
  const auto taken = worker_.taken();
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(std::get<ipc::BeginRequestCommand>(taken[0].command.body).age_ns, 1000u);
  EXPECT_TRUE(std::holds_alternative<ipc::EndRequestCommand>(taken[1].command.body));
  EXPECT_EQ(std::get<ipc::ExpectRequestCommand>(taken[2].command.body).in_ns, 5000u);
}

TEST_F(CApiTest, NullIsRejectedNotDereferenced) {
  gpushared_address address = 0;
  EXPECT_EQ(gpushared_connect(nullptr, nullptr), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_allocate_device(nullptr, 1, &address), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_allocate_device(client_, 1, nullptr), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_launch(stream_, nullptr, nullptr, nullptr, 0), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_synchronize_stream(nullptr), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_begin_request(nullptr, 0), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_end_request(nullptr), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_expect_request_in(nullptr, 0), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(gpushared_default_stream(nullptr), nullptr);
  gpushared_destroy_client(nullptr);
  gpushared_destroy_module(nullptr);
  gpushared_destroy_kernel(nullptr);
  gpushared_destroy_stream(nullptr);
  gpushared_destroy_event(nullptr);
}

TEST_F(CApiTest, LastErrorBelongsToItsThread) {
  gpushared_address address = 0;
  ASSERT_EQ(gpushared_allocate_device(client_, 0, &address), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_THAT(gpushared_last_error_message(), HasSubstr("0 bytes asked"));
  std::thread([] { EXPECT_STREQ(gpushared_last_error_message(), ""); }).join();
}

TEST_F(CApiTest, OptionsOfAnUnknownLayoutAreRejected) {
  gpushared_client_options options = {};
  gpushared_client* client = nullptr;
  EXPECT_EQ(gpushared_connect(&options, &client), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_THAT(gpushared_last_error_message(), HasSubstr("gpushared_client_options_init"));
  gpushared_client_options_init(&options);
  options.scheduling_class = static_cast<gpushared_class_t>(3);
  EXPECT_EQ(gpushared_connect(&options, &client), GPUSHARED_INVALID_ARGUMENT);
  options.scheduling_class = static_cast<gpushared_class_t>(-2);
  EXPECT_EQ(gpushared_connect(&options, &client), GPUSHARED_INVALID_ARGUMENT);
  EXPECT_EQ(client, nullptr);
}

TEST_F(CApiTest, ReturnsClientProperties) {
  gpushared_device_properties properties;
  ASSERT_EQ(gpushared_get_device_properties(client_, &properties), GPUSHARED_OK);
  EXPECT_STREQ(properties.id, "fake:0");
  gpushared_memory_info info;
  ASSERT_EQ(gpushared_get_memory_info(client_, &info), GPUSHARED_OK);
  EXPECT_EQ(info.total_bytes, 64u << 20);
  gpushared_memory_guarantee guarantee;
  ASSERT_EQ(gpushared_get_memory_guarantee(client_, &guarantee), GPUSHARED_OK);
  EXPECT_EQ(guarantee.guaranteed_bytes, 64u << 20) << "nothing moves: all is guaranteed";
  EXPECT_EQ(guarantee.resident_bytes, info.mapped_bytes);
  EXPECT_EQ(guarantee.wanted_bytes, 0u);
  uint64_t trimmed = 7;
  ASSERT_EQ(gpushared_trim_device(client_, &trimmed), GPUSHARED_OK);
  EXPECT_EQ(trimmed, 0u);
  uint64_t session = 0;
  ASSERT_EQ(gpushared_get_session_id(client_, &session), GPUSHARED_OK);
  EXPECT_EQ(session, FakeWorker::kSession);
  EXPECT_EQ(gpushared_client_status(client_), GPUSHARED_OK);
  EXPECT_EQ(gpushared_close(client_), GPUSHARED_OK);
  EXPECT_EQ(gpushared_client_status(client_), GPUSHARED_DISCONNECTED);
}

}  // namespace
}  // namespace gpushared
