// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/telemetry/trace/writer.h"
#include "server/tools/ctl/profile/recorder.h"

namespace gpushared::server {
namespace {

using namespace std::chrono_literals;
using simulation::Profile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr scheduler::TimePoint Moment(std::chrono::nanoseconds time) {
  return scheduler::TimePoint(time);
}

class Recorder : public ::testing::Test {
 protected:
  Recorder()
      : writer_(*trace::Writer::Create()), reader_(*trace::Reader::Open(*writer_->ShareMemory())) {}

  // Returns the slice of a command of `session`. The command was submitted 10 us before its start,
  // and its end was noticed 20 us late.
  trace::Slice Slice(std::uint64_t session, std::chrono::microseconds taken,
                     std::chrono::microseconds started, std::chrono::microseconds ended) {
    const auto submitted = Moment(started - 10us);
    return {.session = session,
            .kernel = trace::KernelKey(1, 2),
            .request = 0,
            .waited = submitted - Moment(taken),
            .submitted = submitted,
            .started = Moment(started),
            .ended = Moment(ended),
            .charged_from = submitted,
            .charged = ended - started + 30us};
  }
  // Adds an event after the reader has read all names.
  void Add(const trace::Event& event) {
    reader_.Poll([](const trace::Event&) {});
    recorder_.Add(reader_, event);
  }
  void AddRequest(std::uint64_t number, std::chrono::microseconds arrived,
                  std::chrono::microseconds ended) {
    Add(trace::Request{.session = 7,
                       .number = number,
                       .stream = 0,
                       .arrived = Moment(arrived),
                       .begun = Moment(arrived),
                       .ended = Moment(ended)});
  }
  Profile Finish(std::uint64_t session) {
    recorder_.Finish(Moment(100ms));
    Result<Profile> profile = recorder_.GetProfile(session);
    EXPECT_TRUE(profile.ok()) << profile.status().message();
    return profile.ok() ? *profile : Profile();
  }

  std::unique_ptr<trace::Writer> writer_;
  trace::Reader reader_;
  ProfileRecorder recorder_{1, Moment(1ms)};
};

TEST_F(Recorder, RecordsTimesOfStepsAndPausesBetweenThem) {
  writer_->NameKernel(trace::KernelKey(1, 2), "gemm");
  trace::Slice first = Slice(7, 2000us, 2010us, 2400us), second = Slice(7, 2520us, 2530us, 2730us),
               third = Slice(7, 2520us, 2735us, 2800us);
  first.request = second.request = third.request = 1;
  third.shape = 9;
  for (const trace::Slice& slice : {first, second, third}) Add(slice);
  AddRequest(1, 1950us, 2820us);
  const Profile profile = Finish(7);
  ASSERT_EQ(profile.requests.size(), 1U);
  EXPECT_NEAR(profile.requests[0].at_ms, 0.95, 1e-6);
  const std::vector<Profile::Step>& steps = profile.requests[0].steps;
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].us, 390);
  EXPECT_EQ(steps[0].after_us, 50) << "from its arrival";
  EXPECT_EQ(steps[1].after_us, 100) << "less the 20 us until the server knew the end";
  EXPECT_FALSE(steps[2].after_us) << "it was there already";
  EXPECT_EQ(steps[0].kernel, steps[1].kernel);
  EXPECT_NE(steps[2].kernel, steps[1].kernel) << "another shape";
  EXPECT_EQ(profile.kernels.at(steps[2].kernel).name, "gemm");
  EXPECT_EQ(recorder_.costs().launch_us, 10);
  EXPECT_EQ(recorder_.costs().notice_us, 20);
  EXPECT_THAT(recorder_.costs().launches_us, ElementsAre(10, 10));
  EXPECT_THAT(recorder_.costs().gaps_us, ElementsAre(5)) << "it waited on the device";
  EXPECT_THAT(recorder_.costs().notices_us, ElementsAre(20)) << "of the one that was alone there";
}

TEST_F(Recorder, ExcludesInterruptionsFromCommandTime) {
  trace::Slice part = Slice(8, 2000us, 2010us, 2500us);
  part.is_part = true;
  part.cut = trace::Cut::kStopped;
  part.stop_asked = Moment(2440us);
  Add(part);
  Add(Slice(7, 2480us, 2490us, 2500us));  // Began while the other client was being stopped.
  Add(Slice(8, 2500us, 2600us, 3000us));
  const Profile profile = Finish(8);
  ASSERT_EQ(profile.pace, Profile::Pace::kEndless);
  ASSERT_EQ(profile.requests.at(0).steps.size(), 1U);
  EXPECT_EQ(profile.requests[0].steps[0].us, 490 - 10 + 400);
  EXPECT_NEAR(profile.seen.shared_percent, 100.0 * 10 / 880, 0.01);
  EXPECT_EQ(recorder_.costs().stop_us, 60);
  EXPECT_EQ(recorder_.costs().stops, 1U);
}

TEST_F(Recorder, NestedInterruptionCountsOnce) {
  Add(Slice(8, 2000us, 2010us, 3000us));
  Add(Slice(7, 2090us, 2100us, 2500us));
  Add(Slice(9, 2190us, 2200us, 2300us));
  EXPECT_EQ(Finish(8).requests.at(0).steps.at(0).us, 990 - 400);
}

TEST_F(Recorder, ExcludesOtherClientsWorkFromDeviceCosts) {
  trace::Slice second = Slice(8, 2000us, 3600us, 3700us), third = Slice(8, 2000us, 3705us, 3800us);
  second.submitted = third.submitted = Moment(2100us);
  Add(Slice(8, 2000us, 2010us, 2400us));
  Add(Slice(7, 2390us, 2400us, 3590us));
  for (const trace::Slice& slice : {second, third}) Add(slice);
  recorder_.Finish(Moment(100ms));
  EXPECT_THAT(recorder_.costs().gaps_us, ElementsAre(5)) << "of the last two";
}

TEST_F(Recorder, IgnoresLaunchCostOfOvertakenWork) {
  trace::Slice overtaken = Slice(8, 2000us, 3100us, 3200us);
  overtaken.submitted = Moment(2000us);
  Add(overtaken);
  Add(Slice(7, 2000us, 2015us, 3090us));
  Add(Slice(7, 5000us, 5010us, 5090us));
  recorder_.Finish(Moment(100ms));
  EXPECT_THAT(recorder_.costs().launches_us, ElementsAre(10));
}

TEST_F(Recorder, SingleLateStepDoesNotMakeStepDependOnPreviousOne) {
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const auto at = std::chrono::microseconds(10'000 * number);
    trace::Slice first = Slice(7, at, at + 10us, at + 100us);
    const auto taken = number == 2 ? at + 150us : at;
    trace::Slice second = Slice(7, taken, at + 160us, at + 200us);
    first.request = second.request = static_cast<std::uint32_t>(number);
    Add(first);
    Add(second);
    AddRequest(number, at, at + 220us);
  }
  for (const Profile::Request& request : Finish(7).requests) {
    EXPECT_TRUE(request.steps.at(0).after_us);
    EXPECT_FALSE(request.steps.at(1).after_us);
  }
}

TEST_F(Recorder, SkipsWorkThatBeganEarlier) {
  Add(Slice(7, 900us, 1010us, 1500us));
  recorder_.Finish(Moment(100ms));
  EXPECT_THAT(recorder_.GetProfile(7).status().message(),
              HasSubstr("client 7 ran nothing meanwhile"));
}

std::vector<trace::Request> Requests(
    const std::vector<std::pair<std::chrono::milliseconds, std::chrono::milliseconds>>& times) {
  std::vector<trace::Request> requests;
  for (const auto& [arrived, ended] : times)
    requests.push_back(
        {.arrived = Moment(arrived), .begun = Moment(arrived), .ended = Moment(ended)});
  return requests;
}

TEST(Paces, RequestsOfALoopHavePausesThatDifferLessThanTheirDistances) {
  EXPECT_EQ(GetPace(Requests({{10ms, 15ms}, {20ms, 35ms}, {40ms, 42ms}, {47ms, 60ms}})),
            Profile::Pace::kClosed);
  EXPECT_EQ(GetPace(Requests({{10ms, 15ms}, {30ms, 45ms}, {50ms, 52ms}, {70ms, 81ms}})),
            Profile::Pace::kInTurn)
      << "even distances";
  EXPECT_EQ(GetPace(Requests({{10ms, 15ms}, {15ms, 20ms}, {20ms, 25ms}})), Profile::Pace::kClosed)
      << "one behind the other";
  EXPECT_EQ(GetPace(Requests({{10ms, 15ms}, {12ms, 20ms}})), Profile::Pace::kOpen);
  std::vector<trace::Request> late = Requests({{10ms, 15ms}, {12ms, 20ms}});
  late[1].begun = Moment(15ms);
  EXPECT_EQ(GetPace(late), Profile::Pace::kInTurn);
}

}  // namespace
}  // namespace gpushared::server
