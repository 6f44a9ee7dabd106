// SPDX-License-Identifier: Apache-2.0
// docs/protocol.md lists every shared byte, so its tables must equal the descriptions of the
// messages and the members of the ring records.

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/wire_fields.h"

namespace gpushared::ipc {
namespace {

using ::gpushared::testing::GetFields;

// Returns offset, bytes and limits of each field, such as "`first` 0+8, `second` 8+16: 1 to 4".
template <typename T>
std::string FieldsText() {
  std::string text;
  for (const Field& field : GetFields<T>()) {
    if (!text.empty()) text += ", ";
    text +=
        "`" + field.name + "` " + std::to_string(field.offset) + "+" + std::to_string(field.bytes);
    if (!field.limits.empty()) text += ": " + field.limits;
  }
  return text;
}

class ProtocolPage : public ::testing::Test {
 protected:
  void ExpectRow(const std::string& row) const {
    EXPECT_TRUE(text_.find("\n" + row) != std::string::npos) << "there is no row\n" << row;
  }
  template <typename Struct>
  void ExpectStruct(const std::string& name) const {
    ExpectRow("| `" + name + "` | " + std::to_string(sizeof(Struct)) + " | " +
              FieldsText<Struct>() + " |");
  }
  template <typename... Messages>
  void ExpectMessages(MessageList<Messages...>) const {
    (ExpectMessage<Messages>(Messages::kName), ...);
  }
  template <typename Message>
  void ExpectMessage(const std::string& name) const {
    const MessageLayout& layout = GetLayout<Message>();
    std::string bytes = std::to_string(layout.bytes);
    if (layout.tail_bytes_max > 0) bytes += " + " + std::to_string(layout.tail_bytes_max);
    ExpectRow("| `" + name + "` | " + bytes + " | " + std::to_string(layout.fds) + " | " +
              FieldsText<Message>() + " |");
  }

 private:
  std::ifstream file_{GPUSHARED_PROTOCOL_PAGE};
  const std::string text_{std::istreambuf_iterator<char>(file_), std::istreambuf_iterator<char>()};
};

TEST_F(ProtocolPage, ListsEveryFieldOfEveryRecord) {
  ExpectStruct<LaunchRecord>("LaunchRecord");
  ExpectStruct<CopyRecord>("CopyRecord");
  ExpectStruct<CopyOnDeviceRecord>("CopyOnDeviceRecord");
  ExpectStruct<FillRecord>("FillRecord");
  ExpectStruct<WaitForRecord>("WaitForRecord");
  ExpectStruct<RequestRecord>("RequestRecord");
  ExpectStruct<GraphRecord>("GraphRecord");
  ExpectStruct<BufferRecord>("BufferRecord");
  ExpectStruct<PlainRecord>("PlainRecord");
  ExpectStruct<CompletionRecord>("CompletionRecord");
  ExpectStruct<FrameHeader>("FrameHeader");
}

TEST_F(ProtocolPage, ListsEveryFieldOfEveryMessage) {
  ExpectMessage<DeviceDescription>("DeviceDescription");
  ExpectMessages(FirstMessages());
  ExpectMessages(ClientMessages());
  ExpectMessages(ServerMessages());
  ExpectMessages(ToWorkerMessages());
  ExpectMessages(ToBrokerMessages());
  ExpectMessages(MoveMessages());
}

}  // namespace
}  // namespace gpushared::ipc
