// SPDX-License-Identifier: Apache-2.0
// Rules for modules, their variables, and the memory that kernels can access.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/device_suite.h"
#include "tests/conformance/rule_images.h"

namespace gpushared::testing {
namespace {

constexpr std::string_view kHeader = ".version 8.0\n.target sm_75\n.address_size 64\n";

const device::KernelInfo* Find(const device::Module& module, std::string_view name) {
  const auto kernels = module.kernels();
  const auto found = std::ranges::find(kernels, name, &device::KernelInfo::name);
  return found == kernels.end() ? nullptr : &*found;
}

TEST_P(DeviceConformance, TextThatDoesNotParseIsRejectedWithLineAndColumn) {
  const TestClient client = NewClient();
  const auto module =
      Load(*client.space, std::string(kHeader) + ".visible .entry k()\n{\n  add.u32 %r1 ,, ;\n}\n");
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(module.status().message().find("line 6"), std::string::npos)
      << module.status().message();
  EXPECT_NE(module.status().message().find("column"), std::string::npos);
}

TEST_P(DeviceConformance, RejectsBytesThatAreNoModule) {
  const TestClient client = NewClient();
  for (const std::string& image : {std::string(), std::string(1000, '\xff'), std::string(64, '\0'),
                                   std::string("\x50\xed\x55\xba\x01\x00\x10\x00", 8)}) {
    const auto module = Load(*client.space, image);
    // Some devices create an empty module from it, but none creates a kernel.
    if (module.ok()) {
      EXPECT_TRUE((*module)->kernels().empty());
    }
  }
  EXPECT_TRUE(Load(*client.space, std::string(kHeader)).ok());
}

TEST_P(DeviceConformance, KernelsAreListedWithTheirParameterLayout) {
  const TestClient client = NewClientWithKernels();
  const device::KernelInfo* kernel = Find(*client.module, "odd_parameters");
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(kernel->parameters.size(), 4U);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> expected{
      {0, 1}, {8, 8}, {16, 2}, {20, 4}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(kernel->parameters[i].offset, expected[i].first) << i;
    EXPECT_EQ(kernel->parameters[i].bytes, expected[i].second) << i;
  }
  EXPECT_EQ(kernel->parameter_bytes, 24U);
  EXPECT_GE(kernel->threads_per_block_max, 64U);
  EXPECT_EQ(Find(*client.module, "reverse")->static_shared_bytes, 256U);
  EXPECT_EQ(Find(*client.module, "mix")->unsupported, "");
}

TEST_P(DeviceConformance, ParametersArriveFromTheirOffsets) {
  const TestClient client = NewClientWithKernels();
  AwaitOk(Launch(client, "odd_parameters", {},
                 Arguments::Pack(std::uint8_t{200}, client.At(64), std::uint16_t{60000},
                                 std::uint32_t{4000000000U})));
  EXPECT_EQ(ReadWords(client, 64, 3), (std::vector<std::uint32_t>{200, 60000, 4000000000U}));
}

TEST_P(DeviceConformance, KernelWithAMissingInstructionLoadsAndNamesIt) {
  if (SkipsUnlessItInterprets()) return;
  const TestClient client = NewClientWithKernels();
  const device::KernelInfo* kernel = Find(*client.module, "needs_matrix_unit");
  ASSERT_NE(kernel, nullptr);
  EXPECT_NE(kernel->unsupported.find("mma.sync"), std::string::npos) << kernel->unsupported;
}

TEST_P(DeviceConformance, CompletionRejectsKernelWithMissingInstruction) {
  if (SkipsUnlessItInterprets()) return;
  const TestClient client = NewClientWithKernels();
  const device::Completion completion =
      Await(Launch(client, "needs_matrix_unit", {}, Arguments::Pack(client.At(0))));
  EXPECT_EQ(completion.status.code(), StatusCode::kUnsupported);
  EXPECT_NE(completion.status.message().find("needs_matrix_unit"), std::string::npos);
}

TEST_P(DeviceConformance, FatbinLoadsLikeItsText) {
  const TestClient client = NewClient();
  const auto module = Load(*client.space, RulesFatbin());
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_NE(Find(**module, "mix"), nullptr);
}

TEST_P(DeviceConformance, VariablesStartInitialisedAndKeepTheirValue) {
  const TestClient client = NewClientWithKernels();
  for (std::uint32_t i = 0; i < 3; ++i) {
    AwaitOk(Launch(client, "bump_variable", {}, Arguments::Pack(client.At(0))));
    EXPECT_EQ(ReadWords(client, 0, 1)[0], 5 + i);
  }
  const std::vector<std::uint32_t> which{1, 3};
  WriteWords(client, 64, which);
  AwaitOk(Launch(client, "sum_table", {}, Arguments::Pack(client.At(0), client.At(64))));
  EXPECT_EQ(ReadWords(client, 0, 1)[0], 3U + 7U);
}

TEST_P(DeviceConformance, EachClientHasVariablesOfItsOwn) {
  const TestClient a = NewClientWithKernels();
  const TestClient b = NewClientWithKernels();
  for (int i = 0; i < 3; ++i) {
    AwaitOk(Launch(a, "bump_variable", {}, Arguments::Pack(a.At(0))));
  }
  AwaitOk(Launch(b, "bump_variable", {}, Arguments::Pack(b.At(0))));
  EXPECT_EQ(ReadWords(b, 0, 1)[0], 5U);
}

const device::VariableInfo* FindVariable(const device::Module& module, std::string_view name) {
  const auto variables = module.variables();
  const auto found = std::ranges::find(variables, name, &device::VariableInfo::name);
  return found == variables.end() ? nullptr : &*found;
}

TEST_P(DeviceConformance, ReportsVariablesThatCopiesAndFillsReach) {
  const TestClient client = NewClientWithKernels();
  const device::VariableInfo* const variable = FindVariable(*client.module, "variable");
  const device::VariableInfo* const table = FindVariable(*client.module, "table");
  ASSERT_NE(variable, nullptr);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(variable->bytes, 4U);
  EXPECT_EQ(variable->space, device::VariableInfo::Space::kGlobal);
  EXPECT_EQ(table->bytes, 16U);
  EXPECT_EQ(table->space, device::VariableInfo::Space::kConstant);
  const auto holds = [&](const device::VariableInfo& each) {
    const auto memory = client.module->variable_memory();
    return std::ranges::any_of(memory, [&](const device::MemoryPiece& piece) {
      return each.address >= piece.base && each.bytes <= piece.bytes &&
             each.address - piece.base <= piece.bytes - each.bytes;
    });
  };
  EXPECT_TRUE(holds(*variable) && holds(*table));

  device::FillWork fill;
  fill.id = next_id();
  fill.space = client.space.get();
  fill.destination = variable->address;
  fill.value = 70;
  fill.element_bytes = 4;
  fill.width_bytes = 4;
  AwaitOk(Submit(fill));
  AwaitOk(Launch(client, "bump_variable", {}, Arguments::Pack(client.At(0))));
  EXPECT_EQ(ReadWords(client, 0, 1)[0], 70U);

  const std::vector<std::uint32_t> values{100, 200, 300, 400}, which{0, 3};
  WriteWords(client, 128, values);
  device::CopyWork copy;
  copy.id = next_id();
  copy.space = client.space.get();
  copy.direction = device::CopyWork::Direction::kDeviceToDevice;
  copy.source = client.At(128);
  copy.destination = table->address;
  copy.width_bytes = 16;
  AwaitOk(Submit(copy));
  WriteWords(client, 64, which);
  AwaitOk(Launch(client, "sum_table", {}, Arguments::Pack(client.At(0), client.At(64))));
  EXPECT_EQ(ReadWords(client, 0, 1)[0], 500U);
}

TEST_P(DeviceConformance, KernelsReachVariablesOfTheirClientsOtherModules) {
  // Contained kernels do not fault, but access harmless memory.
  if (SkipsWhereNoAddressFaults()) return;
  const TestClient client = NewClientWithKernels();
  const auto other =
      Load(*client.space, std::string(kHeader) + ".visible .global .align 4 .u32 number = 41;\n");
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  ASSERT_EQ((*other)->variables().size(), 1U);
  const std::uint64_t address = (*other)->variables()[0].address;
  AwaitOk(Launch(client, "read_at", {}, Arguments::Pack(address, client.At(64))));
  EXPECT_EQ(ReadWords(client, 64, 1)[0], 41U);
  AwaitOk(Launch(client, "write_at", {}, Arguments::Pack(address, 42U)));
  AwaitOk(Launch(client, "read_at", {}, Arguments::Pack(address, client.At(64))));
  EXPECT_EQ(ReadWords(client, 64, 1)[0], 42U);
}

TEST_P(DeviceConformance, OtherClientsVariablesAreInaccessible) {
  if (SkipsUnlessItIsolates()) return;
  const TestClient client = NewClientWithKernels();
  const TestClient other = NewClientWithKernels();
  const std::uint64_t address = FindVariable(*other.module, "variable")->address;
  // A fenced kernel accesses its own memory instead of foreign addresses.
  (void)Await(Launch(client, "write_at", {}, Arguments::Pack(address, 0xbadU)));
  device::FillWork fill;
  fill.id = next_id();
  fill.space = client.space.get();
  fill.destination = address;
  fill.element_bytes = 4;
  fill.width_bytes = 4;
  EXPECT_EQ(Await(Submit(fill)).status.code(), StatusCode::kInvalidArgument);
  AwaitOk(Launch(other, "bump_variable", {}, Arguments::Pack(other.At(0))));
  EXPECT_EQ(ReadWords(other, 0, 1)[0], 5U);
}

TEST_P(DeviceConformance, UnloadedVariablesAreInaccessible) {
  if (SkipsUnlessItIsolates()) return;
  const TestClient client = NewClientWithKernels();
  auto other =
      Load(*client.space, std::string(kHeader) + ".visible .global .align 4 .u32 number = 41;\n");
  ASSERT_TRUE(other.ok());
  const std::uint64_t address = (*other)->variables()[0].address;
  other->reset();
  device::FillWork fill;
  fill.id = next_id();
  fill.space = client.space.get();
  fill.destination = address;
  fill.element_bytes = 4;
  fill.width_bytes = 4;
  EXPECT_EQ(Await(Submit(fill)).status.code(), StatusCode::kInvalidArgument);
  if (GetParam().isolation != device::Isolation::kOff) return;
  EXPECT_EQ(Await(Launch(client, "write_at", {}, Arguments::Pack(address, 1U))).fault,
            FaultKind::kIllegalAddress);
}

TEST_P(DeviceConformance, ReportsKernelAttributes) {
  const TestClient client = NewClientWithKernels();
  const device::KernelInfo* const mix = Find(*client.module, "mix");
  EXPECT_GE(mix->registers, 4U);
  EXPECT_LE(mix->registers, 255U);
  EXPECT_GE(mix->constant_bytes, 16U) << "of `table`";
  EXPECT_GE(mix->ptx_version, 50U);
  EXPECT_GE(mix->binary_version, 50U);
  const device::KernelInfo* const reverse = Find(*client.module, "reverse");
  EXPECT_GE(reverse->dynamic_shared_bytes_max, 48U * 1024 - reverse->static_shared_bytes);
  const auto local = Load(*client.space, std::string(kHeader) +
                                             ".visible .entry k(.param .u64 p)\n{\n"
                                             ".local .align 8 .b8 frame[200];\n"
                                             ".reg .b64 %rd<3>;\nld.param.u64 %rd1, [p];\n"
                                             "st.local.u64 [frame+8], %rd1;\nret;\n}\n");
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  EXPECT_GE((*local)->kernels()[0].local_bytes, 200U);
}

TEST_P(DeviceConformance, AKernelsFaultHasAKind) {
  if (!GetParam().interprets_ptx || SkipsWhereNoAddressFaults()) return;
  const TestClient client = NewClient();
  struct Case {
    const char* body;
    FaultKind kind;
  };
  for (const Case& each : {
           Case{"trap;", FaultKind::kLaunchFailure},
           Case{"mov.u64 %rd1, 64;\nst.global.u32 [%rd1], %r1;", FaultKind::kIllegalAddress},
           Case{"ld.param.u64 %rd1, [p];\nst.global.u32 [%rd1+2], %r1;",
                FaultKind::kMisalignedAddress},
       }) {
    if (each.kind == FaultKind::kIllegalAddress &&
        GetParam().isolation != device::Isolation::kOff) {
      continue;  // A fenced kernel accesses its own memory.
    }
    const auto module = Load(*client.space, std::string(kHeader) +
                                                ".visible .entry k(.param .u64 p)\n{\n"
                                                ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
                                                "mov.u32 %r1, 1;\n" +
                                                each.body + "\nret;\n}\n");
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    device::LaunchWork work;
    work.id = next_id();
    work.space = client.space.get();
    work.module = module->get();
    const std::vector<std::byte> parameters = Arguments::Pack(client.At(0));
    work.parameters = parameters;
    gpu().Submit(work);
    const device::Completion completion = Await(work.id);
    EXPECT_EQ(completion.status.code(), StatusCode::kKernelFault) << each.body;
    EXPECT_EQ(completion.fault, each.kind) << each.body;
  }
}

TEST_P(DeviceConformance, ReloadedModuleStartsAnew) {
  TestClient client = NewClientWithKernels();
  AwaitOk(Launch(client, "bump_variable", {}, Arguments::Pack(client.At(0))));
  client.module.reset();
  auto module = Load(*client.space, RulesPtx());
  ASSERT_TRUE(module.ok());
  client.module = *module;
  AwaitOk(Launch(client, "bump_variable", {}, Arguments::Pack(client.At(0))));
  EXPECT_EQ(ReadWords(client, 0, 1)[0], 5U);
}

TEST_P(DeviceConformance, VariablesCountAgainstQuotaUntilModuleIsFreed) {
  const TestClient client = NewClient(8 * kMebibyte, 4 * kMebibyte);
  const std::string large =
      std::string(kHeader) + ".visible .global .align 4 .b8 large[3000000];\n";
  for (int round = 0; round < 3; ++round) {
    const auto module = Load(*client.space, large);
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    EXPECT_FALSE(client.space->Resize(8 * kMebibyte).ok());
    const auto second = Load(*client.space, large);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), StatusCode::kOutOfMemory);
  }
  EXPECT_TRUE(client.space->Resize(8 * kMebibyte).ok());
}

TEST_P(DeviceConformance, FencedKernelReachesItsOwnMemoryInsteadOfForeignMemory) {
  if (Skips(GetParam().isolation != device::Isolation::kOff, "fence kernels")) return;
  const TestClient client = NewClientWithKernels();
  const TestClient other = NewClientWithKernels();
  const std::vector<std::uint32_t> secret(2, 0x5ec2e7);
  WriteWords(other, 0, secret);
  AwaitOk(Launch(client, "write_at", {}, Arguments::Pack(other.At(0), 0xbadU)));
  AwaitOk(Launch(client, "read_at", {}, Arguments::Pack(other.At(4), client.At(64))));
  EXPECT_EQ(ReadWords(other, 0, 2), secret);
  EXPECT_EQ(ReadWords(client, 0, 1)[0], 0xbadU);
  EXPECT_EQ(ReadWords(client, 64, 1)[0], 0U);
}

TEST_P(DeviceConformance, UnfenceableKernelLoadsAndReportsWhy) {
  if (Skips(GetParam().isolation != device::Isolation::kOff, "fence kernels")) return;
  const TestClient client = NewClient();
  const auto module = Load(*client.space, std::string(kHeader) +
                                              ".visible .entry grid(.param .u64 p)\n{\n"
                                              ".reg .b32 %r<2>;\nmov.u32 %r0, %envreg1;\nret;\n}\n"
                                              ".visible .entry fine()\n{\nret;\n}\n");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  ASSERT_EQ((*module)->kernels().size(), 2U);
  const device::KernelInfo* kernel = Find(**module, "grid");
  ASSERT_NE(kernel, nullptr);
  const bool contains = GetParam().isolation == device::Isolation::kContain;
  EXPECT_NE(kernel->unsupported.find(contains ? "be contained" : "in its client's memory"),
            std::string::npos);
  EXPECT_NE(kernel->unsupported.find("line "), std::string::npos) << kernel->unsupported;
  EXPECT_EQ(kernel->parameter_bytes, 8U);
  EXPECT_EQ(Find(**module, "fine")->unsupported, "");
  device::LaunchWork work;
  work.id = next_id();
  work.space = client.space.get();
  work.module = module->get();
  const std::vector<std::byte> parameters(8);
  work.parameters = parameters;
  gpu().Submit(work);
  EXPECT_EQ(Await(work.id).status.code(), StatusCode::kUnsupported);
}

TEST_P(DeviceConformance, KernelReachesNeitherUnmappedNorForeignMemory) {
  if (SkipsUnlessItIsolates()) return;
  // A fenced kernel accesses its own memory instead of foreign addresses.
  if (Skips(GetParam().isolation == device::Isolation::kOff, "let kernels fault there")) return;
  const TestClient client = NewClientWithKernels();
  const TestClient other = NewClientWithKernels();
  const std::vector<std::uint32_t> secret{0x5ec2e7};
  WriteWords(other, 0, secret);
  for (const std::uint64_t address :
       {other.At(0), client.At(8 * kMebibyte), client.At(8 * kMebibyte - 2), client.At(0) - 4,
        std::uint64_t{0}, ~std::uint64_t{3}, client.At(client.space->range_bytes() - 4)}) {
    const device::Completion write =
        Await(Launch(client, "write_at", {}, Arguments::Pack(address, 0xbadU)));
    EXPECT_EQ(write.status.code(), StatusCode::kKernelFault) << std::hex << address;
    const device::Completion read =
        Await(Launch(client, "read_at", {}, Arguments::Pack(address, client.At(64))));
    EXPECT_EQ(read.status.code(), StatusCode::kKernelFault) << std::hex << address;
  }
  EXPECT_EQ(ReadWords(other, 0, 1), secret);
  EXPECT_EQ(ReadWords(client, 64, 1)[0], 0U);
  AwaitOk(Launch(client, "write_at", {}, Arguments::Pack(client.At(8 * kMebibyte - 4), 1U)));
}

TEST_P(DeviceConformance, ReturnedMemoryIsInaccessible) {
  if (SkipsUnlessItIsolates() || SkipsWhereNoAddressFaults()) return;
  const TestClient client = NewClientWithKernels();
  AwaitOk(Launch(client, "write_at", {}, Arguments::Pack(client.At(6 * kMebibyte), 1U)));
  ASSERT_TRUE(client.space->Resize(4 * kMebibyte).ok());
  EXPECT_EQ(Await(Launch(client, "write_at", {}, Arguments::Pack(client.At(6 * kMebibyte), 1U)))
                .status.code(),
            StatusCode::kKernelFault);
}

TEST_P(DeviceConformance, SharedMemoryRevealsNothingOfOtherClient) {
  if (SkipsUnlessItIsolates()) return;
  const TestClient a = NewClientWithKernels();
  const TestClient b = NewClientWithKernels();
  constexpr std::uint32_t kWords = 4096;
  for (const TestClient* client : {&a, &b, &a}) {
    for (int i = 0; i < 8; ++i) {
      AwaitOk(Launch(*client, "shared_residue", {.dynamic_shared_bytes = kWords * 4},
                     Arguments::Pack(client->At(0), kWords, 0xfeedU)));
      EXPECT_EQ(ReadWords(*client, 0, kWords), std::vector<std::uint32_t>(kWords, 0));
    }
  }
}

TEST_P(DeviceConformance, PrintedTextArrivesWithItsWork) {
  if (SkipsUnlessItInterprets()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId first = Launch(client, "print_lines", {}, Arguments::Pack(2U));
  const device::WorkId second = Launch(client, "print_lines", {}, Arguments::Pack(1U));
  AwaitOk(first);
  AwaitOk(second);
  EXPECT_EQ(Printed(first), "line 0 of block 0\nline 1 of block 0\n");
  EXPECT_EQ(Printed(second), "line 0 of block 0\n");
}

TEST_P(DeviceConformance, LimitsPrintedTextAndMarksTruncation) {
  if (SkipsUnlessItInterprets()) return;
  const TestClient client = NewClientWithKernels();
  const device::WorkId id =
      Launch(client, "print_lines", {.grid = {4, 1, 1}}, Arguments::Pack(20000U));
  AwaitOk(id);
  const std::string text = Printed(id);
  EXPECT_GE(text.size(), device::kOutputBytesMax);
  EXPECT_LE(text.size(), device::kOutputBytesMax + 256);
  EXPECT_NE(text.find("cut]"), std::string::npos);
}

}  // namespace
}  // namespace gpushared::testing
