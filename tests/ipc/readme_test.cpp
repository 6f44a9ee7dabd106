// SPDX-License-Identifier: Apache-2.0
// ipc/README.md promises every shared byte; so its tables are the tables of ipc/wire/fields.h.

#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/fields.h"

namespace gpushared::ipc {
namespace {

// "| `Name` | 24 | `first` 0+8, `second` 8+16 |": offset and bytes of each field.
template <typename Wire>
std::string Row(const std::string& name) {
  std::string row = "| `" + name + "` | " + std::to_string(sizeof(Wire)) + " | ";
  const char* comma = "";
  for (const Field& field : WireFields<Wire>::kAll) {
    row += comma;
    row += "`" + std::string(field.name) + "` " + std::to_string(field.offset) + "+" +
           std::to_string(field.bytes);
    comma = ", ";
  }
  return row + " |";
}

#define GPUSHARED_ROW(Wire) Row<Wire>(#Wire)

TEST(Readme, ListsEveryFieldOfEveryRecordAndMessage) {
  std::ifstream file(GPUSHARED_README);
  const std::string readme((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  for (const std::string& row :
       {GPUSHARED_ROW(LaunchRecord),       GPUSHARED_ROW(CopyRecord),
        GPUSHARED_ROW(CopyOnDeviceRecord), GPUSHARED_ROW(FillRecord),
        GPUSHARED_ROW(WaitForRecord),      GPUSHARED_ROW(RequestRecord),
        GPUSHARED_ROW(PlainRecord),        GPUSHARED_ROW(CompletionRecord),
        GPUSHARED_ROW(FrameHeader),        GPUSHARED_ROW(HelloWire),
        GPUSHARED_ROW(AdminWire),          GPUSHARED_ROW(WhyWire),
        GPUSHARED_ROW(WelcomeWire),        GPUSHARED_ROW(DeviceWire),
        GPUSHARED_ROW(ListDevicesWire),    GPUSHARED_ROW(DeviceListWire),
        GPUSHARED_ROW(PrintedWire),        GPUSHARED_ROW(TextWire),
        GPUSHARED_ROW(MakeImageWire),      GPUSHARED_ROW(ImageMadeWire),
        GPUSHARED_ROW(LoadModuleWire),     GPUSHARED_ROW(ModuleLoadedWire),
        GPUSHARED_ROW(UnloadModuleWire),   GPUSHARED_ROW(ResizeMemoryWire),
        GPUSHARED_ROW(MemoryResizedWire),  GPUSHARED_ROW(AddArenaWire),
        GPUSHARED_ROW(ArenaAddedWire),     GPUSHARED_ROW(DescribeErrorWire),
        GPUSHARED_ROW(ErrorTextWire),      GPUSHARED_ROW(ReadyWire),
        GPUSHARED_ROW(AttachWire),         GPUSHARED_ROW(SessionWire),
        GPUSHARED_ROW(SessionEndedWire),   GPUSHARED_ROW(SetSessionWire),
        GPUSHARED_ROW(PageWire),           GPUSHARED_ROW(TerminateSessionWire),
        GPUSHARED_ROW(TakeOverWire),       GPUSHARED_ROW(RosterWire),
        GPUSHARED_ROW(RosterSessionWire),  GPUSHARED_ROW(RosterEndWire),
        GPUSHARED_ROW(KeepWire),           GPUSHARED_ROW(ForgetWire),
        GPUSHARED_ROW(WatchWire),          GPUSHARED_ROW(TraceOpenedWire),
        GPUSHARED_ROW(ChangeChunkWire),    GPUSHARED_ROW(BufferRecord),
        GPUSHARED_ROW(SetKernelMemoryWire)}) {
    EXPECT_THAT(readme, ::testing::HasSubstr("\n" + row)) << "as it should read";
  }
}

}  // namespace
}  // namespace gpushared::ipc
