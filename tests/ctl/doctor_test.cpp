// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl doctor`: its findings about a machine and about a program's files, and its exit
// codes.
#include "server/tools/ctl/doctor/doctor.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/ctl/doctor/libraries.h"
#include "server/tools/ctl/doctor/machine.h"
#include "server/tools/ctl/doctor/program.h"
#include "server/tools/ctl/doctor/python_packages.h"
#include "server/tools/ctl/module_file.h"
#include "tests/ctl/elf_with.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::doctor {
namespace {

using nlohmann::json;
using State = Finding::State;
using ::testing::ElementsAre;
using testing::ElfWith;
using testing::GetBytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ProgramOutcome;
using testing::RunProgram;
using testing::ScratchDirectory;
using testing::ServerProcess;

// Returns "about: state" of each finding.
std::vector<std::string> Brief(const Findings& findings) {
  std::vector<std::string> brief;
  for (const Finding& it : findings) {
    brief.push_back(it.about + (it.state == State::kOk     ? " ok"
                                : it.state == State::kNote ? " note"
                                                           : " problem"));
    EXPECT_EQ(it.state == State::kProblem && it.advice.empty(), false) << it.what;
  }
  return brief;
}

void Write(const std::string& path, const std::vector<std::byte>& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}
void Write(const std::string& path, const std::string& text) { Write(path, GetBytes(text)); }

// The identifiers with which cuFFT and the runtime request their tables from the driver.
const std::string kFft = "\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2";
const std::string kRuntime = "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9";

// ---- the machine

TEST(DoctorMachineTest, GpusThatCannotBeSharedAreProblems) {
  device::Inventory inventory{.driver_version = "580.65.06", .cuda_version = 13000};
  device::Gpu gpu{.index = 0, .name = "H200", .memory_bytes = std::uint64_t{141} << 30};
  inventory.gpus = {gpu};
  EXPECT_THAT(Brief(CheckGpus(inventory)), ElementsAre("driver ok", "MPS daemon ok", "GPU 0 ok"));
  inventory.gpus[0].mig_enabled = true;
  EXPECT_THAT(Brief(CheckGpus(inventory)),
              ElementsAre("driver ok", "MPS daemon ok", "GPU 0 problem"));
  inventory.gpus[0].instances.resize(2);
  const Findings mig = CheckGpus(inventory);
  EXPECT_THAT(mig[2].what, HasSubstr("MIG mode with 2 instances"));
  EXPECT_THAT(mig[0].what, HasSubstr("580.65.06, CUDA 13.0"));
  inventory.mps = device::MpsDaemon{.pid = 7, .directory = "/tmp/nvidia-mps"};
  EXPECT_THAT(Brief(CheckGpus(inventory)),
              ElementsAre("driver ok", "MPS daemon problem", "GPU 0 problem"));
  inventory = {.unavailable = "no NVIDIA driver on this machine"};
  EXPECT_THAT(Brief(CheckGpus(inventory)), ElementsAre("driver note"));
}

TEST(DoctorMachineTest, OnlyGpusNeedCompiler) {
  EXPECT_EQ(Brief(CheckCompiler("/nonexistent/ptxas", true))[0], "ptxas problem");
  EXPECT_EQ(Brief(CheckCompiler("/nonexistent/ptxas", false))[0], "ptxas note");
}

TEST(DoctorMachineTest, LittleMemoryIsAProblem) {
  EXPECT_EQ(CheckMemory(std::uint64_t{8} << 30).state, State::kOk);
  EXPECT_EQ(CheckMemory(100 << 20).state, State::kProblem);
  EXPECT_EQ(CheckMemory(0).state, State::kNote);
  EXPECT_GT(AvailableMemory(), 0u);
}

TEST(DoctorMachineTest, ChecksAllPartsOfDropIn) {
  const ScratchDirectory directory;
  EXPECT_THAT(Brief(CheckDropIn("")), ElementsAre("drop-in problem"));
  EXPECT_THAT(Brief(CheckDropIn(directory.path())), ElementsAre("drop-in problem"));
  Write(directory / "libcuda.so.1", "no library");
  EXPECT_THAT(Brief(CheckDropIn(directory.path())), ElementsAre("drop-in problem"));
  std::filesystem::remove(directory / "libcuda.so.1");
  std::filesystem::create_symlink("/proc/self/exe", directory / "libcuda.so.1");
  const Findings findings = CheckDropIn(directory.path());
  EXPECT_THAT(Brief(findings), ElementsAre("drop-in note"));
  EXPECT_THAT(findings[0].what, HasSubstr("without ptxas, libnvJitLink.so.12"));
}

// ---- contents of files

TEST(DoctorFilesTest, FindsRuntimeWhereverItsVersionNumberIs) {
  const ScratchDirectory directory;
  for (const std::size_t at : {std::size_t{0}, std::size_t{1} << 20, (std::size_t{1} << 20) + 7,
                               (std::size_t{2} << 20) + 15, (std::size_t{3} << 20) - 1}) {
    Write(directory / "file", std::string(at, 'x') + kRuntime + "rest");
    EXPECT_TRUE(HasCudaRuntime(directory / "file")) << at;
  }
  Write(directory / "file", std::string(100, 'x') + kFft);
  EXPECT_TRUE(HasCudaRuntime(directory / "file"));
  Write(directory / "file", std::string(3u << 20, 'x') + kRuntime.substr(1));
  EXPECT_FALSE(HasCudaRuntime(directory / "file"));
  EXPECT_FALSE(HasCudaRuntime(directory / "none"));
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(HasCudaRuntime(directory / "pipe")) << "and it does not wait";
}

TEST(DoctorFilesTest, LinkedLibrariesAreFollowed) {
  const LinkedFiles found = FindLinkedFiles("/proc/self/exe", "");
  const auto has = [&](const char* name) {
    return std::ranges::any_of(
        found.paths, [&](const std::string& path) { return path.find(name) != std::string::npos; });
  };
  EXPECT_EQ(found.paths[0], "/proc/self/exe");
  EXPECT_TRUE(has("/libstdc++.so")) << "its own";
  EXPECT_TRUE(has("/libm.so")) << "those of its libraries";
  EXPECT_FALSE(has("/lib32/"));
  EXPECT_THAT(FindLinkedFiles("/nonexistent", "").paths, ElementsAre("/nonexistent"));
}

TEST(DoctorFilesTest, MachineCodeAloneIsAProblemWhereOnlyPtxRuns) {
  const ScratchDirectory directory;
  const auto ptx = ReadWholeFile(GPUSHARED_TEST_FATBIN);
  const auto code = ReadWholeFile(GPUSHARED_MACHINE_CODE);
  ASSERT_TRUE(ptx.ok() && code.ok());
  Write(directory / "both", ElfWith(*ptx, ptx->size()));
  EXPECT_THAT(Brief(CheckKernels(directory / "both", true)), ElementsAre("kernels ok"));
  Write(directory / "code", ElfWith(*code, code->size()));
  const Findings findings = CheckKernels(directory / "code", true);
  EXPECT_THAT(Brief(findings), ElementsAre("kernels problem"));
  EXPECT_THAT(findings[0].what, HasSubstr("1 of 1 modules"));
  // nvcc's linker adds a second fatbin without kernels.
  EXPECT_THAT(Brief(CheckKernels(GPUSHARED_NVCC_PROGRAM, true)), ElementsAre("kernels ok"));
  EXPECT_THAT(Brief(CheckKernels(directory / "code", false)), ElementsAre("kernels note"));
  Write(directory / "cut", ElfWith(*code, code->size() + 4096));
  EXPECT_THAT(Brief(CheckKernels(directory / "cut", true)), ElementsAre("kernels problem"));
  EXPECT_THAT(CheckKernels("/proc/self/exe", true), IsEmpty());
  EXPECT_THAT(CheckKernels("/nonexistent", true), IsEmpty());
}

TEST(DoctorFilesTest, BrokenProgramsAreInput) {
  const ScratchDirectory directory;
  const auto whole = ReadWholeFile("/bin/true");
  ASSERT_TRUE(whole.ok());
  std::mt19937_64 random(20261123);
  const std::string path = directory / "program";
  char* const command[] = {const_cast<char*>(path.c_str())};
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> bytes = *whole;
    // Most of the data that is read is in the header and at the beginning.
    for (int i = 0; i < 8; ++i) {
      bytes[16 + random() % (round % 2 == 0 ? 48 : 1024)] = static_cast<std::byte>(random());
    }
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    Write(path, bytes);
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
    EXPECT_THAT(CheckProgram(command, {.search_path = "", .library_path = ""}), Not(IsEmpty()));
  }
}

// ---- Python

TEST(DoctorPythonTest, ImportsAreReadFromTheScript) {
  const ScratchDirectory directory;
  Write(directory / "job.py",
        "import os.path, cupy as cp\nfrom numba.cuda import jit\n  import torch # late\n"
        "important = 1\nfrom . import near\n");
  EXPECT_THAT(ImportedBy(directory / "job.py"), ElementsAre("cupy", "numba", "os", "torch"));
  EXPECT_THAT(ImportedBy(directory / "none.py"), IsEmpty());
}

class DoctorPackagesTest : public ::testing::Test {
 protected:
  // Creates the files that pip would install.
  void Install(const std::string& distribution, const std::string& library,
               const std::string& content) {
    const std::string site = directory_ / "lib/python3.11/site-packages/";
    Write(site + library, content);
    Write(site + distribution + "-1.0.dist-info/RECORD", "../../../bin/tool.so,,\n" + library +
                                                             ",sha256=x,1\n" + distribution +
                                                             "-1.0.dist-info/METADATA,,\n");
  }
  // Examines `python3 job.py` in a virtual environment.
  Findings Inspect(const std::string& script) {
    std::filesystem::create_directories(directory_ / "bin");
    const std::string python = directory_ / "bin/python3", job = directory_ / "job.py";
    if (!std::filesystem::exists(python)) std::filesystem::create_symlink("/bin/true", python);
    Write(job, script);
    char* const command[] = {const_cast<char*>(python.c_str()), const_cast<char*>("-u"),
                             const_cast<char*>(job.c_str())};
    return CheckProgram(command, {.search_path = "", .library_path = "", .is_gated = is_gated_});
  }
  bool is_gated_ = false;

  ScratchDirectory directory_;
};

TEST_F(DoctorPackagesTest, RuntimeInAnImportedPackageIsAProblem) {
  Install("cupy_cuda13x", "cupy_backends/cuda/api/runtime.cpython-311.so", "ELF" + kRuntime);
  Install("plain", "plain/core.so", "ELF");
  // In virtual environments lib64 is a link to lib, so a package must be reported once.
  std::filesystem::create_symlink("lib", directory_ / "lib64");
  EXPECT_THAT(Brief(Inspect("import plain\n")),
              ElementsAre("program ok", "runtime ok", "package note"));
  const Findings findings = Inspect("import cupy_backends\n");
  EXPECT_THAT(Brief(findings), ElementsAre("program ok", "runtime ok", "package problem"));
  EXPECT_THAT(findings[2].what, HasSubstr("cupy_cuda13x has NVIDIA's CUDA runtime in it"));
  // In gate mode the installed driver serves the runtime.
  is_gated_ = true;
  EXPECT_THAT(Brief(Inspect("import cupy_backends\n")), ElementsAre("program ok", "runtime ok"));
}

TEST_F(DoctorPackagesTest, IgnoresLibrariesLoadedByOthers) {
  Install("nvidia_cuda_runtime", "nvidia/cu13/lib/libcudart.so.13", kRuntime);
  Install("cuda_bindings", "cuda/bindings/_internal/runtime.so", kRuntime);
  const Findings findings = Inspect("import nvidia, cuda\n");
  EXPECT_THAT(Brief(findings), ElementsAre("program ok", "runtime ok", "packages ok"));
  // The file belongs to NVIDIA but to no known library, so it is only noted.
  Install("nvidia_cutlass_dsl", "nvidia_cutlass_dsl/lib/libcute_dsl_runtime.so", kRuntime);
  EXPECT_THAT(Brief(Inspect("import cutlass\n")),
              ElementsAre("program ok", "runtime ok", "package note"));
}

// JAX itself does not contain the runtime; its plugin loads cuDNN, which does.
TEST_F(DoctorPackagesTest, FindsPluginsWhoseLibrariesUseRuntime) {
  Install("jax", "jax/core.so", "ELF");
  Install("jax_cuda12_plugin", "jax_plugins/xla_cuda12/plugin.so", "ELF");
  Write(directory_ / "lib/python3.11/site-packages/jax_cuda12_plugin-1.0.dist-info/METADATA",
        "Name: jax-cuda12-plugin\nRequires-Dist: numpy\n"
        "Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.8; extra == \"with-cuda\"\n\nText\n");
  EXPECT_THAT(Brief(Inspect("import jax\n")),
              ElementsAre("program ok", "runtime ok", "packages ok"));
  Install("nvidia_cudnn_cu12", "nvidia/cudnn/lib/libcudnn.so.9", "ELF");
  EXPECT_THAT(Brief(Inspect("import numpy\n")),
              ElementsAre("program ok", "runtime ok", "package note"));
  const Findings findings = Inspect("import jax.numpy as jnp\n");
  EXPECT_THAT(Brief(findings), ElementsAre("program ok", "runtime ok", "package problem"));
  EXPECT_THAT(findings[2].what, HasSubstr("jax_cuda12_plugin works through nvidia_cudnn_cu12"));
}

// OpenMM itself does not contain the runtime; its CUDA plugin loads cuFFT for some functions.
TEST_F(DoctorPackagesTest, NotesOptionalLibraries) {
  Install("openmm_cuda_13", "OpenMM.libs/lib/plugins/libOpenMMCUDA.so", "ELF");
  const std::string metadata =
      directory_ / "lib/python3.11/site-packages/openmm_cuda_13-1.0.dist-info/METADATA";
  Write(metadata,
        "Name: OpenMM-CUDA-13\nRequires-Dist: nvidia-cuda-runtime<14,>=13\n"
        "Requires-Dist: nvidia-cufft<13,>=12\n\nText\n");
  Install("nvidia_cuda_runtime", "nvidia/cu13/lib/libcudart.so.13", kRuntime);
  EXPECT_THAT(Brief(Inspect("import openmm\n")),
              ElementsAre("program ok", "runtime ok", "packages ok"));
  Install("nvidia_cufft", "nvidia/cu13/lib/libcufft.so.12", "ELF");
  const Findings findings = Inspect("import openmm\n");
  EXPECT_THAT(Brief(findings), ElementsAre("program ok", "runtime ok", "package note"));
  EXPECT_THAT(findings[2].what, HasSubstr("openmm_cuda_13 loads nvidia_cufft"));
  Write(metadata, "Name: OpenMM-CUDA-13\nRequires-Dist: nvidia-cufft<13; extra == \"fft\"\n\n");
  EXPECT_THAT(Brief(Inspect("import openmm\n")),
              ElementsAre("program ok", "runtime ok", "packages ok"));
}

TEST_F(DoctorPackagesTest, ScriptsThatCallTheRuntimeThroughBindingsAreProblems) {
  Install("cuda_bindings", "cuda/bindings/_internal/runtime.so", kRuntime);
  EXPECT_THAT(Brief(Inspect("from cuda.bindings import driver, nvrtc\n")),
              ElementsAre("program ok", "runtime ok", "packages ok"));
  for (const char* script : {"from cuda.bindings import runtime as cudart\n",
                             "from cuda import cudart\n", "import cuda.bindings.runtime\n"}) {
    EXPECT_THAT(Brief(Inspect(script)), ElementsAre("program ok", "runtime ok", "package problem"))
        << script;
  }
}

TEST_F(DoctorPackagesTest, ScriptsLeadToTheirInterpreter) {
  static_cast<void>(Inspect(""));
  const std::string tool = directory_ / "tool";
  Write(tool, "#!" + (directory_ / "bin/python3") + "\nimport torch\n");
  ASSERT_EQ(::chmod(tool.c_str(), 0700), 0);
  Install("torch", "torch/lib/libtorch_cuda.so", kRuntime);
  char* const command[] = {const_cast<char*>(tool.c_str())};
  EXPECT_THAT(Brief(CheckProgram(command, {.search_path = "", .library_path = ""})),
              ElementsAre("program ok", "runtime ok", "package problem"));
  Write(tool, "#!/usr/bin/env sh\n");
  EXPECT_THAT(Brief(CheckProgram(command, {.search_path = "/bin", .library_path = ""})),
              ElementsAre("program ok", "program note", "runtime ok"));
}

// ---- the command

TEST(DoctorReportTest, ReplacesControlCharactersInFileNames) {
  const Findings findings = {Problem("program", "\x1b[2J/x\n", "do\x07")};
  EXPECT_THAT(Report(findings), HasSubstr("PROBLEM program       ?[2J/x?\n"));
  EXPECT_EQ(AsJson(findings)["checks"][0]["advice"], "do?");
  EXPECT_EQ(AsJson(findings)["problems"], 1);
}

TEST(DoctorCommandTest, ExitCodeShowsWhetherProblemsExist) {
  const ServerProcess server;
  const auto doctor = [&](std::vector<std::string> arguments) {
    std::vector<std::string> command = {GPUSHARED_CTL, "doctor", "--socket", server.socket()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command);
  };
  // The option --socket may precede the command, as for every other command.
  const ProgramOutcome before =
      RunProgram({GPUSHARED_CTL, "--socket", server.socket(), "doctor", "--", "/bin/true"});
  EXPECT_THAT(before.output, HasSubstr("server        it answers"));
  const ProgramOutcome good = doctor({"--", "/bin/true"});
  EXPECT_THAT(good.output, HasSubstr("it answers, with cpu:0"));
  EXPECT_THAT(good.output, HasSubstr("client of class normal"));
  EXPECT_THAT(good.output, HasSubstr("/bin/true will find the drop-in"));
  EXPECT_EQ(good.exit_code, good.output.find("PROBLEM") == std::string::npos ? 0 : 1);
  const ProgramOutcome fixed = doctor({"--", GPUSHARED_STATIC_PROGRAM});
  EXPECT_EQ(fixed.exit_code, 1);
  EXPECT_THAT(fixed.output, HasSubstr("statically linked"));
  EXPECT_EQ(doctor({"--", "no-such-program"}).exit_code, 1);
  EXPECT_EQ(doctor({"--class", "urgent"}).exit_code, 2);
  const ProgramOutcome alone =
      RunProgram({GPUSHARED_CTL, "doctor", "--json", "--socket", "/nonexistent"});
  EXPECT_EQ(alone.exit_code, 1);
  const json told = json::parse(alone.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(told.is_object()) << alone.output;
  EXPECT_GE(told["problems"], 1);
  EXPECT_TRUE(std::ranges::any_of(told["checks"], [](const json& check) {
    return check["about"] == "server" && check["state"] == "problem";
  }));
}

}  // namespace
}  // namespace gpushared::server::doctor
