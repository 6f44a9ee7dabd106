# SPDX-License-Identifier: Apache-2.0
# What share of a small PyTorch training step could be preempted between blocks? Native, without a
# server.
part_torch() {
  [[ -n $python ]] || { row "PyTorch" "not installed" - fact - "there is no Python"; return 0; }
  "$python" "$here/torch_profile.py" --rows "$rows" --part "$part" --seconds "$((limit > 12 ? limit - 5 : limit - 2))" ||
    fail "torch_profile.py could not do its work"
}
