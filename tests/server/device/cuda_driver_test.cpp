// SPDX-License-Identifier: Apache-2.0
// How the driver is found, what older drivers lack, and how its errors are mapped.

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/cuda/driver.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CudaDriver : public ::testing::Test {
 protected:
  CudaDriver() { fake_cuda_reset(); }
  ~CudaDriver() override { fake_cuda_reset(); }

  static void Script(const char* statements) {
    const char* wrong = fake_cuda_script(statements);
    ASSERT_EQ(wrong, nullptr) << wrong;
  }
  static const MissingFeature* Missing(const Driver& driver, Feature feature) {
    const auto found =
        std::ranges::find(driver.missing_features(), feature, &MissingFeature::feature);
    return found == driver.missing_features().end() ? nullptr : &*found;
  }
};

TEST_F(CudaDriver, IsFoundByItsNameAndInitialised) {
  const auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok()) << driver.status().ToString();
  EXPECT_EQ((*driver)->version(), 13000);
  EXPECT_THAT((*driver)->missing_features(), IsEmpty());
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    EXPECT_TRUE((*driver)->Has(static_cast<Feature>(i))) << FeatureName(static_cast<Feature>(i));
  }
  int count = 0;
  EXPECT_EQ((*driver)->DeviceGetCount(&count), Code::kSuccess);
  EXPECT_EQ(count, 1);
}

TEST_F(CudaDriver, ReportsMissingDriver) {
  const auto driver = Driver::Load("libcuda-of-no-machine.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(driver.status().message(), AllOf(StartsWith("no CUDA driver on this machine: "),
                                               HasSubstr("libcuda-of-no-machine.so.1")));
}

TEST_F(CudaDriver, RejectsLibraryThatIsNoDriver) {
  const auto driver = Driver::Load("libm.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(driver.status().message(),
              AllOf(HasSubstr("of an unknown version"), HasSubstr("lacks cuInit")));
}

// Removes every call of the list in turn. A missing base call rejects the driver; any other call
// turns off exactly its feature, and the message names the call.
TEST_F(CudaDriver, EachMissingCallTurnsOffItsFeatureAndNoOther) {
  for (const SymbolRow& row : Symbols()) {
    SCOPED_TRACE(row.name);
    fake_cuda_reset();
    Script((std::string("missing ") + row.name).c_str());
    const auto driver = Driver::Load();
    if (row.feature == Feature::kBase) {
      ASSERT_FALSE(driver.ok());
      EXPECT_EQ(driver.status().code(), StatusCode::kUnsupported);
      EXPECT_THAT(driver.status().message(), HasSubstr("lacks " + std::string(row.name) + ","));
      continue;
    }
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    ASSERT_EQ((*driver)->missing_features().size(), 1U);
    const MissingFeature& missing = (*driver)->missing_features()[0];
    EXPECT_EQ(missing.feature, row.feature);
    EXPECT_THAT(missing.why, AllOf(StartsWith(std::string(FeatureName(row.feature)) + " off"),
                                   HasSubstr(row.name), HasSubstr(VersionText(row.version))));
    EXPECT_FALSE((*driver)->Has(row.feature));
  }
}

TEST_F(CudaDriver, MissingCallReturnsNotSupported) {
  Script("missing cuGreenCtxCreate");
  const auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok());
  GreenContext context = nullptr;
  EXPECT_EQ((*driver)->GreenCtxCreate(&context, nullptr, 0, 0), Code::kNotSupported);
  EXPECT_EQ(fake_cuda_calls("cuGreenCtxCreate"), 0U);
}

TEST_F(CudaDriver, OlderVersionsHaveFeaturesOfTheirCudaRelease) {
  Script("version 12030");
  const auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok());
  EXPECT_TRUE((*driver)->Has(Feature::kVirtualMemory));
  EXPECT_TRUE((*driver)->Has(Feature::kStreamMemoryOperations));
  EXPECT_TRUE((*driver)->Has(Feature::kLaunchAttributes));
  EXPECT_FALSE((*driver)->Has(Feature::kGreenContexts));
  EXPECT_FALSE((*driver)->Has(Feature::kParameterInfo));
  ASSERT_NE(Missing(**driver, Feature::kParameterInfo), nullptr);
  EXPECT_THAT(Missing(**driver, Feature::kParameterInfo)->why, HasSubstr("12.4"));
}

TEST_F(CudaDriver, RejectsTooOldDriverNamingBothVersions) {
  Script("version 10020");
  const auto driver = Driver::Load();
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(driver.status().message(),
              AllOf(HasSubstr("serves CUDA 10.2"), HasSubstr("at least 11.0 is needed")));
  // The message reports the newest of the missing calls, not the last one in the list.
  Script("version 6000");
  EXPECT_THAT(Driver::Load().status().message(),
              AllOf(HasSubstr("serves CUDA 6.0"), HasSubstr("at least 11.0 is needed")));
}

// Calls are requested in the declared form, because a newer form could take different parameters.
TEST_F(CudaDriver, RequestsCallsInDeclaredForm) {
  ASSERT_TRUE(Driver::Load().ok());
  EXPECT_STREQ(fake_cuda_take_mistakes(), "");
}

// The cuGetProcAddress of CUDA 11.3 returns no symbol status, and CUDA 11.2 has no
// cuGetProcAddress.
TEST_F(CudaDriver, SupportsOlderLookupMechanisms) {
  const auto by_older = Driver::Load(GPUSHARED_FAKE_CUDA_11_3);
  ASSERT_TRUE(by_older.ok()) << by_older.status().ToString();
  EXPECT_EQ((*by_older)->version(), 13000);
  EXPECT_THAT((*by_older)->missing_features(), IsEmpty());

  const auto by_name = Driver::Load(GPUSHARED_FAKE_CUDA_11_2);
  ASSERT_TRUE(by_name.ok()) << by_name.status().ToString();
  EXPECT_TRUE((*by_name)->Has(Feature::kVirtualMemory));
  EXPECT_TRUE((*by_name)->Has(Feature::kHostRegister));
  EXPECT_FALSE((*by_name)->Has(Feature::kStreamMemoryOperations));
  EXPECT_FALSE((*by_name)->Has(Feature::kGreenContexts));
  int count = 0;
  EXPECT_EQ((*by_name)->DeviceGetCount(&count), Code::kSuccess);
  // No call of the fake driver was reached under another name either.
  EXPECT_EQ(fake_cuda_calls(nullptr), 0U);
}

TEST_F(CudaDriver, FailureToInitialiseIsExplained) {
  Script("fail cuInit 1 803");
  const auto mismatch = Driver::Load();
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(mismatch.status().message(),
            "CUDA driver of version 13.0 cannot be used: cuInit: "
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver / cuda "
            "driver combination");

  fake_cuda_reset();
  Script("devices 0");
  const auto none = Driver::Load();
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("CUDA_ERROR_NO_DEVICE (100)"));
}

TEST_F(CudaDriver, ErrorsNameCallAndCode) {
  const auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ((*driver)->Explain("cuLaunchKernel", Code::kIllegalAddress),
            "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was "
            "encountered");
  // A code that this driver has no name for.
  EXPECT_EQ((*driver)->Explain("cuInit", static_cast<Code>(31337)), "cuInit: CUDA error (31337)");
  Script("fail cuDeviceGetCount 1 999");
  int count = 0;
  const Status tried = (*driver)->Try((*driver)->DeviceGetCount, &count);
  EXPECT_EQ(tried.code(), StatusCode::kInternal);
  EXPECT_THAT(tried.message(), StartsWith("cuDeviceGetCount: "));
  EXPECT_TRUE((*driver)->Try((*driver)->DeviceGetCount, &count).ok());
}

// The numbers of the codes after which, according to the CUDA header, the process must be restarted
// before it can use CUDA again.
TEST(CudaCodes, ContextEndingCodesMatchHeader) {
  const int ending[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
  for (int number = 0; number < 1000; ++number) {
    const bool ends = std::ranges::find(ending, number) != std::end(ending);
    EXPECT_EQ(EndsContext(static_cast<Code>(number)), ends) << number;
    EXPECT_EQ(ToStatusCode(static_cast<Code>(number)) == StatusCode::kDeviceLost, ends) << number;
  }
}

TEST(CudaCodes, MapToMatchingStatusCodes) {
  EXPECT_EQ(ToStatusCode(Code::kSuccess), StatusCode::kOk);
  EXPECT_EQ(ToStatusCode(Code::kOutOfMemory), StatusCode::kOutOfMemory);
  EXPECT_EQ(ToStatusCode(Code::kNotReady), StatusCode::kNotReady);
  EXPECT_EQ(ToStatusCode(Code::kInvalidPtx), StatusCode::kInvalidArgument);
  EXPECT_EQ(ToStatusCode(Code::kLaunchOutOfResources), StatusCode::kInvalidArgument);
  EXPECT_EQ(ToStatusCode(Code::kNoBinaryForGpu), StatusCode::kUnsupported);
  EXPECT_EQ(ToStatusCode(Code::kNotSupported), StatusCode::kUnsupported);
  EXPECT_EQ(ToStatusCode(Code::kDeviceUnavailable), StatusCode::kUnavailable);
  EXPECT_EQ(ToStatusCode(Code::kMpsServerNotReady), StatusCode::kUnavailable);
  EXPECT_EQ(ToStatusCode(Code::kNotPermitted), StatusCode::kPermissionDenied);
  EXPECT_EQ(ToStatusCode(Code::kInvalidValue), StatusCode::kInternal);
  EXPECT_EQ(ToStatusCode(Code::kUnknown), StatusCode::kInternal);
}

TEST(CudaVersions, FormatAsMajorDotMinor) {
  EXPECT_EQ(VersionText(12040), "12.4");
  EXPECT_EQ(VersionText(13000), "13.0");
  EXPECT_EQ(VersionText(4010), "4.1");
}

}  // namespace
}  // namespace gpushared::device::cuda
