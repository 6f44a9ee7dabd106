// SPDX-License-Identifier: Apache-2.0
// The interposers as seen by a program that preloads them, with fakes in place of the real
// libraries.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client_lib/drop_in/interposers/lto_anchor.h"
#include "client_lib/drop_in/interposers/real_library.h"
#include "tests/drop_in/archive.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::drop_in {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Calls a library's function by name.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  template <typename Answer = int, typename... Arguments>
  Answer Call(const char* name, Arguments... arguments) const {
    void* const function = ::dlsym(handle_, name);
    EXPECT_NE(function, nullptr) << name;
    return reinterpret_cast<Answer (*)(Arguments...)>(function)(arguments...);
  }

 private:
  void* const handle_;
};

class InterposerTest : public ::testing::Test {
 protected:
  InterposerTest() { ::setenv("LD_LIBRARY_PATH", GPUSHARED_FAKES, 1); }
};

// ---- NVRTC

class NvrtcTest : public InterposerTest {
 protected:
  using Options = std::vector<const char*>;

  // Compiles a program with these options and returns its machine code.
  std::string MachineCode(const Options& options) {
    void* program = nullptr;
    EXPECT_EQ(Create(&program), 0);
    EXPECT_EQ(Compile(program, options), 0);
    std::size_t bytes = 0;
    EXPECT_EQ(nvrtc_.Call("nvrtcGetCUBINSize", program, &bytes), 0);
    std::string code(bytes, 'x');
    EXPECT_EQ(nvrtc_.Call("nvrtcGetCUBIN", program, code.data()), 0);
    EXPECT_EQ(code.back(), '\0');
    code.pop_back();
    EXPECT_EQ(nvrtc_.Call("nvrtcDestroyProgram", &program), 0);
    return code;
  }
  int Create(void** program) {
    static const char* const texts[] = {"text"};
    static const char* const names[] = {"name.h"};
    return nvrtc_.Call("nvrtcCreateProgram", program, "source", "name", 1, &texts[0], &names[0]);
  }
  int Compile(void* program, const Options& options) {
    return nvrtc_.Call("nvrtcCompileProgram", program, static_cast<int>(options.size()),
                       options.data());
  }

  const Library nvrtc_{GPUSHARED_DROP_IN "/libnvrtc.so.13"};
};

TEST_F(NvrtcTest, CubinsArePtxOfTheSameArchitecture) {
  EXPECT_EQ(MachineCode({"-std=c++17", "-arch=sm_80"}), "PTX -std=c++17 -arch=compute_80");
  EXPECT_EQ(MachineCode({"--gpu-architecture=sm_90a"}), "PTX --gpu-architecture=compute_90a");
  EXPECT_EQ(MachineCode({"-arch", "sm_80", "-G"}), "PTX -arch compute_80 -G");
}

TEST_F(NvrtcTest, ProgramsWithoutCubinsKeepTheirOptions) {
  EXPECT_EQ(MachineCode({"-arch=compute_80"}), "CUBIN -arch=compute_80");
  EXPECT_EQ(MachineCode({"-DNAME=sm_80", "sm_80"}), "CUBIN -DNAME=sm_80 sm_80");
  EXPECT_EQ(MachineCode({"-dlto", "-arch=sm_80"}), "CUBIN -dlto -arch=sm_80");
  EXPECT_EQ(MachineCode({}), "CUBIN");
}

TEST_F(NvrtcTest, AllArgumentsReachTheRealLibrary) {
  void* program = nullptr;
  ASSERT_EQ(Create(&program), 0);
  std::size_t bytes = 0;
  ASSERT_EQ(nvrtc_.Call("nvrtcGetPTXSize", program, &bytes), 0);
  std::string text(bytes, 'x');
  ASSERT_EQ(nvrtc_.Call("nvrtcGetPTX", program, text.data()), 0);
  EXPECT_STREQ(text.c_str(), "PTX source name 1 text name.h");
  EXPECT_EQ(nvrtc_.Call("nvrtcDestroyProgram", &program), 0);
  EXPECT_EQ(program, nullptr);
  EXPECT_STREQ(nvrtc_.Call<const char*>("nvrtcGetErrorString", 1), "fake error");
}

TEST_F(NvrtcTest, FunctionsThatTheRealLibraryLacksFail) {
  std::size_t bytes = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(nvrtc_.Call("nvrtcGetTileIRSize", static_cast<void*>(nullptr), &bytes), 11);
  }
}

TEST_F(NvrtcTest, NullOptionsAreRejected) {
  void* program = nullptr;
  ASSERT_EQ(Create(&program), 0);
  const char* const* const none = nullptr;
  EXPECT_EQ(nvrtc_.Call("nvrtcCompileProgram", program, 1, none), 3);
  EXPECT_EQ(nvrtc_.Call("nvrtcCompileProgram", program, -1, none), 3);
  EXPECT_EQ(Compile(program, {nullptr}), 3);
  EXPECT_EQ(nvrtc_.Call("nvrtcDestroyProgram", &program), 0);
}

TEST_F(NvrtcTest, ManyThreadsMakeTheFirstCallAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      int major = 0, minor = 0;
      EXPECT_EQ(nvrtc_.Call("nvrtcVersion", &major, &minor), 0);
      EXPECT_EQ(minor, 7);
      EXPECT_EQ(MachineCode({"-arch=sm_80"}), "PTX -arch=compute_80");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NvrtcTest, ServesPackagesWithWheelOfAnotherMajorVersion) {
  const gpushared::testing::ScratchDirectory scratch;
  const std::string packages = scratch / "site-packages/";
  std::filesystem::create_directories(packages + "nvidia/cu13/lib");
  std::filesystem::copy_file(GPUSHARED_FAKES "/libnvrtc.so.13",
                             packages + "nvidia/cu13/lib/libnvrtc.so.13");
  std::filesystem::copy_file(GPUSHARED_FAKES "/libnvJitLink.so.13", packages + "extension.so");
  const Library extension(packages + "extension.so");
  const Library older(GPUSHARED_DROP_IN "/libnvrtc.so.12");
  int major = 0, minor = 0;
  EXPECT_EQ(older.Call("nvrtcVersion", &major, &minor), 0);
  EXPECT_EQ(major, 13);
}

// ---- nvJitLink

constexpr int kPtx = 2, kLtoIr = 3, kCubin = 1, kLibrary = 6, kAny = 10;
constexpr char kHeader[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
constexpr char kCaller[] =
    ".extern .func twice();\n.visible .entry k()\n{\ncall twice, ();\nret;\n}\n";
constexpr char kCallee[] = ".visible .func twice()\n{\nret;\n}\n";

class NvJitLinkTest : public InterposerTest {
 protected:
  ~NvJitLinkTest() override {
    if (link_ != nullptr) {
      EXPECT_EQ(library_.Call("nvJitLinkDestroy", &link_), 0);
    }
    EXPECT_EQ(link_, nullptr);
  }
  int Create(std::vector<const char*> options) {
    return library_.Call("nvJitLinkCreate", &link_, static_cast<std::uint32_t>(options.size()),
                         options.data());
  }
  int Add(int type, const std::string& bytes, const char* name) {
    return library_.Call("nvJitLinkAddData", link_, type, static_cast<const void*>(bytes.data()),
                         bytes.size(), name);
  }
  int AddText(int type, const char* body, const char* name) {
    return Add(type, std::string(kHeader) + body, name);
  }
  int Complete() { return library_.Call("nvJitLinkComplete", link_); }
  std::string Image(const std::string& kind) {
    std::size_t bytes = 0;
    EXPECT_EQ(library_.Call(("nvJitLinkGetLinked" + kind + "Size").c_str(), link_, &bytes), 0);
    std::string image(bytes, 'x');
    EXPECT_EQ(library_.Call(("nvJitLinkGetLinked" + kind).c_str(), link_,
                            static_cast<void*>(image.data())),
              0);
    EXPECT_EQ(image.find('\0'), bytes - 1) << "a load without a size needs the NUL";
    return image;
  }
  std::string ErrorLog() {
    std::size_t bytes = 0;
    EXPECT_EQ(library_.Call("nvJitLinkGetErrorLogSize", link_, &bytes), 0);
    std::string log(bytes, 'x');
    EXPECT_EQ(library_.Call("nvJitLinkGetErrorLog", link_, log.data()), 0);
    return log;
  }

  const Library library_{GPUSHARED_DROP_IN "/libnvJitLink.so.13"};
  void* link_ = nullptr;
};

TEST_F(NvJitLinkTest, LinksOfLtoIrReturnPtxAsCubin) {
  ASSERT_EQ(Create({"-arch=sm_80", "-lto"}), 0);
  ASSERT_EQ(AddText(kLtoIr, kCallee, nullptr), 0);
  ASSERT_EQ(Complete(), 0);
  EXPECT_THAT(Image("Cubin"), HasSubstr("twice()"));
  EXPECT_EQ(Image("Cubin"), Image("Ptx"));
}

TEST_F(NvJitLinkTest, PtxIsLinkedToThePtxOfLtoIr) {
  ASSERT_EQ(Create({"-arch=sm_80", "-lto", "-ptx"}), 0);
  ASSERT_EQ(AddText(kLtoIr, kCaller, "caller"), 0);
  ASSERT_EQ(AddText(kPtx, kCallee, "callee"), 0);
  ASSERT_EQ(Add(kLibrary, testing::DeviceRuntimeArchive(), "libcudadevrt.a"), 0);
  ASSERT_EQ(Complete(), 0) << ErrorLog();
  EXPECT_EQ(Complete(), 0) << "again";
  EXPECT_THAT(Image("Cubin"), HasSubstr(".entry k"));
  EXPECT_THAT(Image("Cubin"), HasSubstr(".func twice"));
}

// nvJitLink does not parse the PTX, so it would drop functions of LTO-IR that are called only from
// PTX.
TEST_F(NvJitLinkTest, KeepsFunctionsOfLtoIrThatAreCalledOnlyFromPtx) {
  void* const nvrtc = ::dlopen(GPUSHARED_DROP_IN "/libnvrtc.so.13", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(nvrtc, nullptr) << ::dlerror();
  ASSERT_EQ(Create({"-arch=sm_80", "-lto"}), 0);
  ASSERT_EQ(Add(kLtoIr, "// uncalled\n.func  twice()\n{\nret;\n}\n", "callee"), 0);
  ASSERT_EQ(AddText(kPtx, kCaller, "caller"), 0);
  ASSERT_EQ(Complete(), 0) << ErrorLog();
  EXPECT_THAT(Image("Cubin"), AllOf(HasSubstr(".visible .func twice()\n{"), HasSubstr(".entry k"),
                                    Not(HasSubstr("gpushared_anchor"))));
}

TEST_F(NvJitLinkTest, WithoutNvrtcTheErrorNamesTheFunction) {
  ASSERT_EQ(Create({"-arch=sm_80", "-lto"}), 0);
  ASSERT_EQ(Add(kLtoIr, "// uncalled\n.func  twice()\n{\nret;\n}\n", "callee"), 0);
  ASSERT_EQ(AddText(kPtx, kCaller, "caller"), 0);
  EXPECT_EQ(Complete(), 4);
  EXPECT_THAT(ErrorLog(), HasSubstr("'twice'"));
}

TEST(LtoAnchorTest, RequestsFunctionsThatPtxOnlyDeclares) {
  LtoAnchor anchor;
  anchor.RecordPtx(
      ".extern .func  (.param .b32 r) one\n(\n.param .b32 a\n)\n;\n"
      ".extern .func two();\n.extern .func (.param .b32 r) vprintf (.param .b64 a);\n"
      ".extern .func $odd();\n.extern .func three\n();\n");
  anchor.RecordPtx(".visible .func two()\n{\nret;\n}\n.func three()\n{\nret;\n}\n");
  EXPECT_THAT(anchor.called(), ElementsAre("one", "three"));
}

TEST(LtoAnchorTest, OnlyWhatIsCalledBecomesVisible) {
  LtoAnchor anchor;
  anchor.RecordPtx(".extern .func one();\n.extern .func two();\n");
  const std::string kernel = ".visible .entry gpushared_anchor(\n.param .u64 p\n)\n{\nret;\n}\n";
  const std::string rest = ".visible .func two()\n{\nret;\n}\n.func onetwo()\n{\nret;\n}\n";
  EXPECT_EQ(anchor.LinkablePtx(".func  (.param .b32 r) one()\n{\nret;\n}\n" + kernel + rest),
            ".visible .func  (.param .b32 r) one()\n{\nret;\n}\n" + rest);
  EXPECT_EQ(anchor.LinkablePtx(kernel + "\t.section .debug_info"),
            kernel + "\t.section .debug_info");
  EXPECT_EQ(anchor.LinkablePtx(".func"), ".func");
  EXPECT_EQ(anchor.LinkablePtx(".func (one"), ".func (one");
}

TEST_F(NvJitLinkTest, WithoutLtoIrTheRealLibraryIsNotCalled) {
  ASSERT_EQ(Create({"-arch=sm_80"}), 0);
  ASSERT_EQ(AddText(kPtx, kCaller, "caller"), 0);
  ASSERT_EQ(AddText(kAny, kCallee, "callee"), 0);
  ASSERT_EQ(Complete(), 0) << ErrorLog();
  EXPECT_THAT(Image("Cubin"), HasSubstr(".func twice"));
  EXPECT_EQ(ErrorLog(), "");
}

TEST_F(NvJitLinkTest, RejectionsAreInTheErrorLog) {
  ASSERT_EQ(Create({"-arch=sm_80"}), 0);
  EXPECT_EQ(Add(kCubin, "ELF", "a.cubin"), 8);
  EXPECT_THAT(ErrorLog(), HasSubstr("'a.cubin'"));
  ASSERT_EQ(AddText(kPtx, kCallee, "one"), 0);
  ASSERT_EQ(AddText(kPtx, kCallee, "two"), 0);
  EXPECT_EQ(Complete(), 4);
  EXPECT_THAT(ErrorLog(), HasSubstr("'twice'"));
  std::size_t bytes = 0;
  EXPECT_EQ(library_.Call("nvJitLinkGetLinkedCubinSize", link_, &bytes), 3);
}

TEST_F(NvJitLinkTest, RealLibrarysRejectionsAndLogArePassedOn) {
  ASSERT_EQ(Create({"-lto"}), 0);
  EXPECT_EQ(Add(kCubin, "ELF", "a.cubin"), 12);
  EXPECT_STREQ(ErrorLog().c_str(), "the real log");
  EXPECT_EQ(Complete(), 9);
}

TEST_F(NvJitLinkTest, ExportsTheNamesOfEveryRelease) {
  for (const char* name : {"__nvJitLinkCreate_13_0", "__nvJitLinkCreate_13_5"}) {
    ASSERT_EQ(library_.Call(name, &link_, 0U, static_cast<const char**>(nullptr)), 0) << name;
    ASSERT_EQ(library_.Call("__nvJitLinkDestroy_13_1", &link_), 0);
  }
}

TEST_F(NvJitLinkTest, NullPointersAreErrors) {
  void* const none = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(Create({}), 0);
  for (const char* get : {"ErrorLog", "InfoLog", "LinkedCubin", "LinkedPtx", "LinkedLTOIR"}) {
    const std::string name = std::string("nvJitLinkGet") + get;
    EXPECT_EQ(library_.Call(name.c_str(), none, none), 10) << name;
    EXPECT_EQ(library_.Call(name.c_str(), link_, none), 10) << name;
    EXPECT_EQ(library_.Call((name + "Size").c_str(), none, &bytes), 10) << name;
    EXPECT_EQ(library_.Call((name + "Size").c_str(), link_, none), 10) << name;
  }
  EXPECT_EQ(library_.Call("nvJitLinkComplete", none), 10);
  EXPECT_EQ(library_.Call("nvJitLinkDestroy", none), 10);
  EXPECT_EQ(library_.Call("nvJitLinkCreate", none, 0U, none), 10);
  EXPECT_EQ(library_.Call("nvJitLinkCreate", &link_, 1U, none), 10);
  EXPECT_EQ(library_.Call("nvJitLinkAddData", link_, kPtx, none, bytes, none), 10);
  EXPECT_EQ(library_.Call("nvJitLinkAddFile", link_, kPtx, none), 10);
  EXPECT_EQ(library_.Call("nvJitLinkAddFile", link_, kPtx, "/nonexistent"), 3);
}

// ---- location of the real library

constexpr const char* kNames[] = {"libnothing.so.13", "libnothing.so.12"};

TEST(RealLibraryTest, SearchesUserDirectoriesInOrder) {
  ::setenv("LD_LIBRARY_PATH", "/first:relative::/second", 1);
  const std::vector<std::string> places = GetPlaces(kNames);
  const auto place = [&](const std::string& path) {
    return std::ranges::find(places, path) - places.begin();
  };
  EXPECT_LT(place("/first/libnothing.so.13"), place("/second/libnothing.so.13"));
  EXPECT_LT(place("/second/libnothing.so.13"), place("/usr/local/cuda/lib64/libnothing.so.13"));
  EXPECT_LT(place("/usr/local/cuda/lib64/libnothing.so.13"), place("/first/libnothing.so.12"));
  EXPECT_THAT(places, Each(::testing::StartsWith("/")));
}

TEST(RealLibraryTest, SearchesWheelsNextToPythonPackages) {
  const gpushared::testing::ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "site-packages/cuda");
  const std::string extension = scratch / "site-packages/cuda/extension.so";
  std::filesystem::copy_file(GPUSHARED_FAKES "/libnvrtc.so.13", extension);
  ASSERT_NE(::dlopen(extension.c_str(), RTLD_NOW), nullptr) << ::dlerror();
  const std::vector<std::string> places = GetPlaces(kNames);
  // Compares positions only, because other tests of this process may have loaded packages, too.
  const auto wheel =
      std::ranges::find(places, scratch / "site-packages/nvidia/cu13/lib/libnothing.so.13");
  EXPECT_LT(wheel, std::ranges::find(places, "/usr/local/cuda/lib64/libnothing.so.13"));
  EXPECT_THAT(places, Contains(scratch / "site-packages/nvidia/nvjitlink/lib/libnothing.so.12"));
}

TEST(RealLibraryTest, MissingLibraryIsNamed) {
  const RealLibrary none = LoadReal(kNames, &kNames);
  EXPECT_EQ(none.handle, nullptr);
  EXPECT_THAT(none.why_not, HasSubstr("libnothing.so.13"));
}

}  // namespace
}  // namespace gpushared::drop_in
