# SPDX-License-Identifier: Apache-2.0
"""Slurm's own daemons as a cluster of a controller and three nodes, each in separate namespaces, and a gpushared server
on each node. Everything is a child of this process, which must be the first of a pid namespace, so that everything ends
with it."""
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))
from waiting import until  # noqa: E402

PACKAGING = HERE.parent.parent / "packaging/slurm"
NODES = ("n1", "n2")  # Of the default partition.
PAIR = "n3"  # A node with two devices, in a partition of its own.
DEVICES = {"n1": "cpu:0", "n2": "cpu:0", PAIR: "cpu:0,cpu:1"}
# Types that name a device, or a word of its name.
TYPES = {"n1": ("cpu0",), "n2": ("embedded",), PAIR: ("cpu0", "cpu1")}
# The queues of QOS; the first one is the default.
QOS = {"batch": 10, "prod": 1000, "open": 10}
RUN_DIRECTORY = "/run/gpushared"  # Separate on each node.

SLURM_CONF = """
ClusterName=gpushared
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
ReturnToService=2
KillWait=5
SlurmdTimeout=30
SlurmdParameters=config_overrides
StateSaveLocation={work}/ctl
SlurmctldPidFile={work}/slurmctld.pid
SlurmctldLogFile={work}/log/slurmctld.log
SlurmdSpoolDir={work}/spool.%n
SlurmdPidFile={work}/slurmd.%n.pid
SlurmdLogFile={work}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
PlugStackConfig={work}/etc/plugstack.conf
JobSubmitPlugins=lua
GresTypes=gpushared,gpushared_memory,gpu,mps
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=10.77.0.1
AccountingStoragePass={work}/munge/socket
AccountingStorageTRES=gres/gpushared,gres/gpushared_memory
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
PriorityWeightQOS=10000
Prolog={work}/etc/prolog
Epilog={work}/etc/epilog
TaskProlog={work}/etc/task_prolog
{nodes}
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=pair Nodes=n3 MaxTime=INFINITE State=UP
"""
GRES_CONF = """
AutoDetect=off
{gres}
NodeName=n[1-2] Name=gpu File={work}/gpu0
NodeName=n[1-2] Name=mps Count=100 File={work}/gpu0
"""
# Scripts of a site that starts and ends an MPS daemon for each job with gres/mps.
PROLOG = """#!/bin/bash
[[ -n $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE ]] || exit 0
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps_$SLURM_JOB_ID CUDA_MPS_LOG_DIRECTORY=/tmp/nvidia-log_$SLURM_JOB_ID
mkdir -p $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY
exec >{work}/log/prolog.$SLURM_JOB_ID 2>&1
set -e
nvidia-cuda-mps-control -d
nvidia-cuda-mps-control start_server -uid $SLURM_JOB_UID
"""
TASK_PROLOG = """#!/bin/bash
[[ -z $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE ]] || echo export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps_$SLURM_JOB_ID
"""
EPILOG = """#!/bin/bash
export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps_$SLURM_JOB_ID
[[ -d $CUDA_MPS_PIPE_DIRECTORY ]] || exit 0
exec >{work}/log/epilog.$SLURM_JOB_ID 2>&1
set -e
echo quit | nvidia-cuda-mps-control
rm -rf $CUDA_MPS_PIPE_DIRECTORY /tmp/nvidia-log_$SLURM_JOB_ID
"""
SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo={work}/munge/socket
DbdHost=ctl
DbdAddr=10.77.0.1
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=33306
StorageUser=slurm
StoragePass=gpushared
StorageLoc=slurm_acct
PidFile={work}/dbd/pid
LogFile={work}/log/slurmdbd.log
"""
RULES = """
[qos.batch]
class = "low"
highest_share = "50%"
highest_memory = "512MiB"
[qos.prod]
class = "high"
"""
# Options for this machine; the rules are typical of sites.
SERVER_OPTIONS = ("--cpu-threads", "1", "--memory", "1GiB", "--staging-memory", "256MiB", "--code-cache", "none")


class Cluster:
    def __init__(self, programs: pathlib.Path, plugin: pathlib.Path, work: pathlib.Path):
        self.work, self.processes = work, {}
        self.holders = {}
        self.environment = {"PATH": f"{work}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C.UTF-8",
                            "SLURM_CONF": f"{work}/etc/slurm.conf", "LD_LIBRARY_PATH": f"{work}/lib"}
        for directory in ("bin", "lib", "etc", "log", "ctl", "db", "dbd", "munge", "jobs", "mps", *(f"spool.{node}" for node in DEVICES)):
            (work / directory).mkdir()
        (work / "jobs").chmod(0o777)
        for directory in ("log", "ctl", "dbd"):
            shutil.chown(work / directory, "slurm")
        shutil.chown(work / "db", "mysql")
        shutil.chown(work / "munge", "munge")
        for program in ("gpushared", "gpusharedctl", "gpushared-mps-control", "serve", "train", "vector_add_cpp",
                        "drop_in_vector_add"):
            shutil.copy(programs / program, work / "bin")
        (work / "mps/nvidia-cuda-mps-control").symlink_to(work / "bin/gpushared-mps-control")
        shutil.copytree(programs.parent / "lib/drop_in", work / "lib/drop_in", symlinks=True)
        shutil.copy(plugin, work / "lib")
        # Slurm requires a device file, which is never opened.
        os.mknod(work / "gpu0", 0o666 | 0o020000, os.makedev(1, 3))
        self.configure()

    def configure(self):
        lua = (PACKAGING / "job_submit.lua").read_text().replace("/usr/share/gpushared/slurm/gpushared.lua",
                                                                 str(PACKAGING / "gpushared.lua"))
        plugstack = (PACKAGING / "plugstack.conf").read_text()
        plugstack = plugstack.replace("/usr/lib/gpushared/slurm", f"{self.work}/lib")
        plugstack = plugstack.replace("/etc/gpushared/slurm.toml", f"{self.work}/etc/rules.toml")
        files = {"slurm.conf": SLURM_CONF, "gres.conf": GRES_CONF, "slurmdbd.conf": SLURMDBD_CONF,
                 "rules.toml": RULES, "gpushared.toml": (PACKAGING / "gpushared.toml").read_text(), "plugstack.conf": plugstack,
                 "job_submit.lua": lua, "prolog": PROLOG, "task_prolog": TASK_PROLOG, "epilog": EPILOG}
        nodes, gres = "", ""
        for number, (node, types) in enumerate(TYPES.items(), 11):
            counts = [f"gpushared:{each}:100,gpushared_memory:{each}:1G" for each in types]
            counts += ["gpu:1,mps:100"] if node in NODES else []
            nodes += f"NodeName={node} NodeAddr=10.77.0.{number} CPUs=64 RealMemory=8000 Gres={','.join(counts)} State=UNKNOWN\n"
            for each in types:
                gres += f"NodeName={node} Name=gpushared Type={each} Count=100\n"
                gres += f"NodeName={node} Name=gpushared_memory Type={each} Count=1G\n"
        for name, text in files.items():
            text = text.replace("{work}", str(self.work)).replace("{nodes}", nodes).replace("{gres}", gres)
            (self.work / "etc" / name).write_text(text)
        for name in ("prolog", "task_prolog", "epilog"):
            (self.work / "etc" / name).chmod(0o755)
        shutil.chown(self.work / "etc/slurmdbd.conf", "slurm")
        (self.work / "etc/slurmdbd.conf").chmod(0o600)

    # ---- running programs

    def inside(self, where: str, command, user: str = ""):
        """Returns the command as run on the controller or a node."""
        holder = self.holders.get(where)
        enter = ["nsenter", f"--target={holder.pid}", "--net", "--uts", "--mount", "--"] if holder else []
        change = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []
        return [*enter, *change, *map(str, command)]

    def start(self, name: str, where: str, *command, user: str = ""):
        with open(self.work / "log" / f"{name}.out", "ab") as log:
            self.processes[name] = subprocess.Popen(self.inside(where, command, user), stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=log, env=self.environment)
        return self.processes[name]

    def run(self, where: str, *command, user: str = "", environment=None, check: bool = True, seconds: float = 120):
        done = subprocess.run(self.inside(where, command, user), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**self.environment, **(environment or {})}, timeout=seconds, check=False,
                              cwd=self.work / "jobs")
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} on {where}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def ask(self, *command, **more) -> str:
        return self.run("ctl", *command, **more).stdout.strip()

    # ---- from scratch to a cluster

    def up(self):
        begun = time.monotonic()
        self.bring_up()
        print(f"the cluster was up in {time.monotonic() - begun:.0f} s", flush=True)

    def bring_up(self):
        self.network()
        self.munge()
        self.accounting()
        self.start("slurmctld", "ctl", "slurmctld", "-D", "-c")
        until("slurmctld answers", lambda: self.run("ctl", "scontrol", "ping", check=False).stdout.find("UP") >= 0)
        for node in DEVICES:
            self.start_server(node)
            self.start(f"slurmd.{node}", node, "slurmd", "-D", "-N", node)
        until("the nodes are idle", lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * len(DEVICES))

    def network(self):
        for where in ("ctl", *DEVICES):
            # Prologs find MPS commands in a standard directory.
            command = f"hostname {where}; mkdir -p {RUN_DIRECTORY}; mount -t tmpfs -o mode=755 tmpfs {RUN_DIRECTORY}; " \
                      f"mount --bind {self.work}/mps /usr/local/bin; ip link set lo up; exec sleep infinity"
            self.holders[where] = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sh", "-c", command])
        for where, holder in self.holders.items():
            def is_apart():
                name = self.run(where, "hostname").stdout.strip()
                return name == where and "state UNKNOWN" in self.run(where, "ip", "link", "show", "lo").stdout
            until(f"namespaces of {where}", lambda: holder.poll() is None and is_apart())
        for command in ("link add br0 type bridge", "addr add 10.77.0.1/24 dev br0", "link set br0 up"):
            self.run("ctl", "ip", *command.split())
        for number, node in enumerate(DEVICES, 11):
            self.run("ctl", "ip", "link", "add", f"to-{node}", "type", "veth", "peer", "name", "veth0", "netns",
                     self.holders[node].pid)
            self.run("ctl", "ip", "link", "set", f"to-{node}", "master", "br0", "up")
            self.run(node, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", "veth0")
            self.run(node, "ip", "link", "set", "veth0", "up")

    def munge(self):
        directory = self.work / "munge"
        key = directory / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        shutil.chown(key, "munge")
        self.start("munged", "ctl", "munged", "--foreground", f"--key-file={key}", f"--socket={directory}/socket",
                   f"--pid-file={directory}/pid", f"--log-file={directory}/log", f"--seed-file={directory}/seed", user="munge")
        until("munged answers", lambda: self.run("ctl", "munge", "-S", directory / "socket", "-n", check=False).returncode == 0)

    def accounting(self):
        database = self.work / "db"
        self.run("ctl", "mariadb-install-db", "--user=mysql", f"--datadir={database}",
                 "--auth-root-authentication-method=normal")
        self.start("mariadbd", "ctl", "mariadbd", "--no-defaults", f"--datadir={database}", f"--socket={database}/socket",
                   "--bind-address=127.0.0.1", "--port=33306", f"--pid-file={database}/pid",
                   "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", user="mysql")
        sql = ("create database slurm_acct; create user slurm@127.0.0.1 identified by 'gpushared'; create user "
               "slurm@localhost identified by 'gpushared'; grant all on slurm_acct.* to slurm@127.0.0.1; "
               "grant all on slurm_acct.* to slurm@localhost")
        until("mariadbd takes the accounts", lambda: self.run(
            "ctl", "mariadb", "-S", database / "socket", "-uroot", "-e", sql, check=False).returncode == 0)
        self.start("slurmdbd", "ctl", "slurmdbd", "-D", user="slurm")
        until("slurmdbd answers", lambda: self.run("ctl", "sacctmgr", "-n", "show", "cluster", check=False).returncode == 0)
        self.ask("sacctmgr", "-i", "add", "cluster", "gpushared", check=False)
        self.ask("sacctmgr", "-i", "add", "account", "lab")
        for qos, priority in QOS.items():
            self.ask("sacctmgr", "-i", "add", "qos", qos, "set", f"priority={priority}")
        for user in ("daemon", "games"):
            self.ask("sacctmgr", "-i", "add", "user", user, "account=lab", f"qos={','.join(QOS)}", "defaultqos=batch")

    def start_server(self, node: str):
        self.start(f"gpushared.{node}", node, "gpushared", "--config", self.work / "etc/gpushared.toml", "--socket",
                   f"{RUN_DIRECTORY}/gpushared.sock", "--device", DEVICES[node], *SERVER_OPTIONS)
        until(f"the server of {node} answers", lambda: self.run(node, "gpusharedctl", "--socket", f"{RUN_DIRECTORY}/gpushared.sock",
                                                                "status", check=False).returncode == 0)
