// SPDX-License-Identifier: Apache-2.0
// The samples behave as described in their README, on a real server.

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "samples/language_model/model.h"
#include "samples/serve/arrivals.h"
#include "tests/support/server_process.h"

gpushared::Status AddOnSharedDevice(std::string_view ptx, const float* a, const float* b,
                                    float* sum, unsigned n);  // client_lib/consume/add.cpp

namespace gpushared::testing {
namespace {

std::string Scratch(const char* name) {
  return (std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + name)).string();
}

class Samples : public ::testing::Test {
 protected:
  Samples() { ::setenv("GPUSHARED_SOCKET", server_.socket().c_str(), 1); }
  static ProgramOutcome Run(std::vector<std::string> command) {
    command[0] = GPUSHARED_BIN_DIR "/" + command[0];
    return RunProgram(command);
  }
  ServerProcess server_;
};

TEST_F(Samples, VectorAddInBothLanguages) {
  for (const char* program : {"vector_add_c", "vector_add_cpp"}) {
    const ProgramOutcome outcome = Run({program});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("sums are right"), std::string::npos) << outcome.output;
  }
}

TEST_F(Samples, ReadmeExampleAddsAndReportsErrors) {
  std::ifstream file(GPUSHARED_KERNELS, std::ios::binary);
  const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<float> a(1000, 1.5f), b(1000, 2.25f);
  std::vector<float> sum(1000);
  const Status added = AddOnSharedDevice(image, a.data(), b.data(), sum.data(), 1000);
  EXPECT_TRUE(added.ok()) << added.ToString();
  EXPECT_EQ(std::ranges::count(sum, 3.75f), 1000);
  EXPECT_EQ(AddOnSharedDevice("no PTX", a.data(), b.data(), sum.data(), 1000).code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(AddOnSharedDevice(image, a.data(), b.data(), sum.data(), 0).ok());
}

TEST_F(Samples, TrainLearnsAndServeAnswersWithItsModel) {
  const std::string model = Scratch("model");
  const ProgramOutcome train = Run({"train", "--text", GPUSHARED_TEXT, "--model", model, "--steps",
                                    "12", "--batch", "16", "--hidden", "32"});
  EXPECT_EQ(train.exit_code, 0) << train.output;
  EXPECT_NE(train.output.find("agree with the reference"), std::string::npos) << train.output;
  const ProgramOutcome serve = Run({"serve", "--model", model, "--requests", "30", "--batch", "4"});
  EXPECT_EQ(serve.exit_code, 0) << serve.output;
  EXPECT_NE(serve.output.find("agree with the reference"), std::string::npos) << serve.output;
  std::filesystem::remove(model);
}

TEST_F(Samples, NamesInvalidOptionsAndFiles) {
  EXPECT_NE(Run({"train", "--text", "/nowhere"}).output.find("/nowhere"), std::string::npos);
  EXPECT_NE(Run({"train", "--txt", "x"}).output.find("--txt"), std::string::npos);
  EXPECT_NE(Run({"serve", "--model", GPUSHARED_TEXT}).output.find("not a model file"),
            std::string::npos);
  EXPECT_NE(Run({"serve", "--model", GPUSHARED_TEXT}).exit_code, 0);
  const std::string large =
      Run({"train", "--text", GPUSHARED_TEXT, "--batch", "65536", "--hidden", "32768"}).output;
  EXPECT_NE(large.find("2147483648 elements, allowed: 2147483647"), std::string::npos) << large;
}

TEST(SamplesWithoutServer, SayThatNoServerAnswers) {
  ::setenv("GPUSHARED_SOCKET", "/nowhere/gpushared.sock", 1);
  const ProgramOutcome outcome = RunProgram({GPUSHARED_BIN_DIR "/vector_add_cpp"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("/nowhere/gpushared.sock"), std::string::npos) << outcome.output;
}

// The standard deviation of the inter-arrival times, divided by their mean.
double GetVariation(const std::vector<double>& arrivals) {
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const double gap = arrivals[i] - arrivals[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const double count = static_cast<double>(arrivals.size() - 1), mean = sum / count;
  return std::sqrt(squares / count - mean * mean) / mean;
}

TEST(Arrivals, HaveRequestedMeanAndRepeatForSameSeed) {
  const std::vector<double> arrivals = samples::BurstyArrivals(5000, 0.01, 3);
  EXPECT_NEAR(arrivals.back(), 50.0, 1e-6);
  EXPECT_EQ(arrivals, samples::BurstyArrivals(5000, 0.01, 3));
  EXPECT_NE(arrivals, samples::BurstyArrivals(5000, 0.01, 4));
}

TEST(Arrivals, HaveRequestedVariation) {
  EXPECT_NEAR(GetVariation(samples::BurstyArrivals(20000, 0.01, 3)), 1.5, 0.1);
  EXPECT_NEAR(GetVariation(samples::BurstyArrivals(20000, 0.01, 3, 1)), 1.0, 0.1);
}

TEST(Arrivals, KeepProportionsOfTrace) {
  const std::string path = Scratch("trace");
  std::ofstream(path) << "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 "
                         "18:17:03.0,1,1\n2023-11-16 18:17:04.0,1,1\n"
                         "2023-11-16 18:17:07.0,1,1\n";
  const std::vector<double> arrivals = samples::TraceArrivals(path, 2, 0.5, 0);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_NEAR(arrivals[0], 0.25, 1e-9);
  EXPECT_NEAR(arrivals[1], 1.0, 1e-9);
  for (const char* line : {"nonsense", "2023-11-16 18:17:nan", "2023-11-16 18:17:-4",
                           "2023-11-16 24:17:04", "2023-11-16 18:60:04", "2023-11-16 18:17:03.0"}) {
    std::ofstream(path) << "TIMESTAMP\n2023-11-16 18:17:03.0\n" << line << "\n";
    EXPECT_THROW((void)samples::TraceArrivals(path, 2, 0.5, 0), std::runtime_error) << line;
  }
  std::filesystem::remove(path);
}

TEST(LanguageModel, LossOfTheReferenceFalls) {
  samples::Shape shape;
  shape.hidden = 32;
  samples::Model model = samples::RandomModel(shape, 1);
  const std::string text =
      "the quick brown fox jumps over the lazy dog; the quick brown fox sleeps";
  const float first =
      samples::ReferenceStep(model, samples::DrawBatch(text, shape, 32, 1, 0), 0.5f);
  float last = first;
  for (std::uint64_t step = 1; step < 30; ++step) {
    last = samples::ReferenceStep(model, samples::DrawBatch(text, shape, 32, 1, step), 0.5f);
  }
  EXPECT_LT(last, first - 1);
}

// Because repeated rows do not change the result of a step, a step over the distinct rows can
// verify the device's step over all rows.
TEST(LanguageModel, StepOverRepeatedRowsIsTheStepOverTheRows) {
  samples::Shape shape;
  shape.hidden = 32;
  const std::string text = "the quick brown fox jumps over the lazy dog";
  const samples::Batch rows = samples::DrawBatch(text, shape, 6, 1, 0);
  const samples::Batch repeated = samples::Repeat(rows, 5);
  EXPECT_EQ(repeated.rows(), 30);
  samples::Model a = samples::RandomModel(shape, 1), b = a;
  const float loss = samples::ReferenceStep(a, rows, 0.5f);
  EXPECT_NEAR(samples::ReferenceStep(b, repeated, 0.5f), loss, 1e-5);
  EXPECT_LT(samples::LargestDifference(a.parameters, b.parameters), 1e-5);
  EXPECT_GT(samples::LargestDifference(samples::RandomModel(shape, 1).parameters, a.parameters),
            1e-3);
}

TEST(LanguageModel, RowsForReferenceFitBudgetAndDivideBatch) {
  samples::Shape shape;
  shape.hidden = 100;
  const double row = 3.0 * 100 * (192 + 96);
  EXPECT_EQ(samples::RowsForReferenceStep(shape, 128, 128 * row), 128);
  EXPECT_EQ(samples::RowsForReferenceStep(shape, 128, 127 * row), 64);
  EXPECT_EQ(samples::RowsForReferenceStep(shape, 30, 14 * row), 10);
  EXPECT_EQ(samples::RowsForReferenceStep(shape, 31, 14 * row), 1) << "31 is prime";
  EXPECT_EQ(samples::RowsForReferenceStep(shape, 128, 0), 1);
}

TEST(LanguageModel, ChecksRowsWithinBudgetAndAnswer) {
  samples::Shape shape;
  shape.hidden = 100;
  const double row = 100 * (192 + 96);
  EXPECT_EQ(samples::RowsToCheck(shape, 32, 10, 0, 320 * row).count, 32U);
  EXPECT_EQ(samples::RowsToCheck(shape, 32, 10, 3, 320 * row).first, 0U);
  EXPECT_EQ(samples::RowsToCheck(shape, 32, 10, 0, 319 * row).count, 31U);
  EXPECT_EQ(samples::RowsToCheck(shape, 32, 10, 0, 0).count, 1U);
  std::vector<bool> seen(32);
  for (std::size_t number = 0; number < 32; ++number) {
    const samples::RowRange rows = samples::RowsToCheck(shape, 32, 10, number, 0);
    ASSERT_LT(rows.first, seen.size());
    seen[rows.first] = true;
  }
  EXPECT_EQ(std::ranges::count(seen, true), 32) << "every row has its turn";
}

}  // namespace
}  // namespace gpushared::testing
