# SPDX-License-Identifier: Apache-2.0
# Which machine is it, does the server serve its GPU and can it preempt kernels there, do both
# vector adds compute correct results?
part_environment() {
  row "kernel" "$(uname -r)" - fact -
  row "processor" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc) cores" fact -
  row "date" "$(date -u +%FT%TZ)" - fact -
  row "gpushared" "$("$bin/gpushared" --version | head -n 1)" - fact -
  [[ -r /proc/driver/nvidia/version ]] && row "driver" "$(head -n 1 /proc/driver/nvidia/version)" - fact -
  start_server priority
  row "device" "${CUDA_VISIBLE_DEVICES:-none}" - fact -
  "$bin/gpusharedctl" devices
  row "the server serves a GPU" "$([[ $(device_field kind) == cuda ]] && echo 1 || echo 0)" - rule "== 1"
  preemption_row "policy priority"
  timeout --foreground 10 "$bin/vector_add_cpp" && timeout --foreground 10 "$bin/vector_add_c"
  row "vector add in C++ and C" $((! $?)) - rule "== 1"
  stop_server
  # Last, because it is only informational and may take long.
  nvidia_smi_rows
}
nvidia_smi_rows() {
  command -v nvidia-smi >/dev/null || return 0
  local names=(name driver_version memory.total compute_mode mig.mode.current persistence_mode ecc.mode.current
    clocks.max.sm clocks.max.memory power.limit pcie.link.gen.max pcie.link.width.max)
  local list=${names[*]} all values i
  all=$(timeout --foreground 15 nvidia-smi --query-gpu="uuid,${list// /,}" --format=csv,noheader)
  # A MIG instance is not listed there, so the first GPU counts.
  IFS=, read -r -a values < <(grep -F "${CUDA_VISIBLE_DEVICES:-GPU-}" <<<"$all" || echo "$all")
  for i in "${!names[@]}"; do row "${names[i]}" "${values[i + 1]:-}" - fact -; done
  timeout --foreground 10 nvidia-smi -q >"$logs/nvidia-smi.txt" 2>&1
  return 0
}
