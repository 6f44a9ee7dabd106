// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/read_owner.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::server {
namespace {

const std::string kId(64, 'a'), kOtherId(64, 'b');

// A /proc with one process, and a kubelet's directory.
class Machine {
 public:
  Machine() {
    std::filesystem::create_directories(directory_ / "proc/7");
    std::filesystem::create_directories(directory_ / "logs");
    SetProgram("serve\n");
  }
  void SetProgram(const std::string& comm) const { Write("proc/7/comm", comm); }
  void SetCgroup(const std::string& text) const { Write("proc/7/cgroup", text); }
  void AddLink(const std::string& name) const { Write("logs/" + name, ""); }
  ipc::Owner Read(ipc::Owner owner = {}) const {
    ReadOwner(7, owner, {.proc = directory_ / "proc", .container_logs = directory_ / "logs"});
    return owner;
  }

 private:
  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(directory_ / file) << text;
  }
  testing::ScratchDirectory directory_;
};

TEST(ReadOwner, NamesTheContainerOfAPod) {
  const Machine machine;
  machine.AddLink("db-0_default_db-" + kOtherId + ".log");
  machine.AddLink("web-1_shop_app-server-" + kId + ".log");
  // Paths that the systemd driver and cgroupfs create, as seen from the root of the cgroups and
  // from inside a container.
  for (const std::string& cgroup :
       {"0::/kubepods.slice/kubepods-pod12.slice/cri-containerd-" + kId + ".scope\n",
        "0::/kubepods/burstable/pod12/" + kId + "\n",
        "0::/../../cri-containerd-" + kId + ".scope/init\n",
        "12:pids:/kubepods/pod12/" + kId + "\n11:cpu:/kubepods/pod12/" + kId + "\n"}) {
    machine.SetCgroup(cgroup);
    const ipc::Owner owner = machine.Read();
    EXPECT_EQ(owner.Get("namespace"), "shop") << cgroup;
    EXPECT_EQ(owner.Get("pod"), "web-1");
    EXPECT_EQ(owner.Get("container"), "app-server");
    EXPECT_EQ(owner.Get("program"), "serve");
  }
}

TEST(ReadOwner, ShowsTheIdOfAContainerWithoutNames) {
  const Machine machine;
  machine.SetCgroup("0::/system.slice/docker-" + kId + ".scope\n");
  EXPECT_EQ(machine.Read().Get("container"), "aaaaaaaaaaaa");
  EXPECT_EQ(machine.Read().Get("pod"), "");
}

TEST(ReadOwner, KeepsTheOwnerThatTheEndpointStates) {
  const Machine machine;
  machine.AddLink("web-1_shop_app-" + kId + ".log");
  machine.SetCgroup("0::/kubepods/pod12/" + kId + "\n");
  const ipc::Owner owner = machine.Read(*ipc::Owner::Parse("pod:trainer-0"));
  EXPECT_EQ(owner.Get("pod"), "trainer-0");
  EXPECT_EQ(owner.Get("namespace"), "");
  EXPECT_EQ(owner.Get("program"), "serve");
}

// A container may create cgroups below its own, and a user below their slice.
TEST(ReadOwner, IgnoresIdsThatAPeerMayHaveMade) {
  const Machine machine;
  machine.AddLink("victim_shop_app-" + kId + ".log");
  machine.AddLink("web-1_shop_app-" + kOtherId + ".log");
  machine.SetCgroup("0::/kubepods/pod12/" + kOtherId + "/" + kId + "\n");
  EXPECT_EQ(machine.Read().Get("pod"), "web-1");
  for (const std::string& cgroup :
       {"0::/user.slice/user-1000.slice/user@1000.service/cri-containerd-" + kId + ".scope\n",
        "0::/../../user.slice/user-1000.slice/" + kId + "\n", "0::/kubepods/" + kId + "a\n",
        std::string("0::/\n"), std::string()}) {
    machine.SetCgroup(cgroup);
    EXPECT_EQ(machine.Read().Get("pod"), "") << cgroup;
    EXPECT_EQ(machine.Read().Get("container"), "") << cgroup;
  }
}

TEST(ReadOwner, IgnoresLinksThatNoKubeletMakes) {
  const Machine machine;
  machine.SetCgroup("0::/kubepods/pod12/" + kId + "\n");
  for (const char* const names :
       {"web_app", "web_shop_a_b", "w\xff_shop_app", "W_shop_app", "__"}) {
    machine.AddLink(std::string(names) + "-" + kId + ".log");
  }
  EXPECT_EQ(machine.Read().Get("pod"), "");
  EXPECT_EQ(machine.Read().Get("container"), "aaaaaaaaaaaa");
}

TEST(ReadOwner, ReplacesWhatIsNotPrintableInNamesOfPrograms) {
  const Machine machine;
  machine.SetProgram("a\"}\n\x1b[2J\n");
  EXPECT_EQ(machine.Read().Get("program"), "a\"}??[2J");
  machine.SetProgram(std::string(100'000, 'x'));
  EXPECT_EQ(machine.Read().Get("program"), std::string(16, 'x'));
}

TEST(ReadOwner, KnowsNothingOfProcessesThatTheServerCannotSee) {
  ipc::Owner owner;
  ReadOwner(0, owner);
  ReadOwner(-1, owner);
  EXPECT_EQ(owner.ToRow(), ipc::Owner().ToRow());
  ReadOwner(::getpid(), owner);
  EXPECT_EQ(owner.Get("program"), "worker_test");
}

}  // namespace
}  // namespace gpushared::server
