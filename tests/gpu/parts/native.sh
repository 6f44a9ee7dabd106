# SPDX-License-Identifier: Apache-2.0
# Does the GPU compute correct results at all, through the driver's own calls and without gpushared?
part_native() {
  local answer
  answer=$(timeout --foreground 15 "$bin/gpu_ops_native" <<<$'device\nround_trip 0 50')
  row "a kernel by the driver's own calls" "$(grep -c '^ok' <<<"$answer")" - rule "== 2" "$(head -n 1 <<<"$answer")"
  row "MPS" "$(find_mps && command -v nvidia-cuda-mps-control || echo "not installed")" - fact -
  row "ptxas" "${ptxas:-not installed}" - fact - "$([[ -z $ptxas ]] || "$ptxas" --version | tail -n 1)"
  row "Python" "${python:-not installed}" - fact -
}
